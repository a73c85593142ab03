# For t/t7*.t on members, sourced after ensemble.sh.

# Start the service outside of the broker, and wait until it answers; its process is $serve.
serve() {
	flux ensemble serve 2>>serve.log &
	serve=$!
	wait_service
}

# Wait until no job of the instance is active, and so none is a member.
wait_quiet() {
	flux queue drain --timeout=300
}

# Wait until both members of a pool are up: `wait_both_up NAME POOL`.
wait_both_up() {
	wait_status_of $1 pools.$2.members.0.state up pools.$2.members.1.state up
}

# Succeed if a file is there and has as many lines, or more: `has_lines FILE COUNT`.
has_lines() {
	test -e "$1" && test "$(wc -l <"$1")" -ge "$2"
}

# Print how many entries of a kind the log of an ensemble has: `entries NAME ENTRY`.
entries() {
	flux ensemble log --json $1 | grep -c "\"name\": \"$2\""
}
