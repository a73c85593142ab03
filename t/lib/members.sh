# For t/t7*.t on members, sourced after ensemble.sh.

# Start the service outside of the broker, and wait until it answers; its process is $serve.
serve() {
	flux ensemble serve 2>>serve.log &
	serve=$!
	wait_until flux ensemble list >/dev/null 2>&1
}

# Succeed if a file is there and has as many lines, or more: `has_lines FILE COUNT`.
has_lines() {
	test -e "$1" && test "$(wc -l <"$1")" -ge "$2"
}

# Print how many entries of a kind the log of an ensemble has: `entries NAME ENTRY`.
entries() {
	flux ensemble log --json $1 | grep -c "\"name\": \"$2\""
}
