# For t/t7*.t on members, sourced after ensemble.sh.

# Start the service outside of the broker, and wait until it answers; its process is $serve, or the
# one that the process for short commands has in its place (`service_pid`).
serve() {
	begin_python "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" serve 2>>serve.log
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

# Write a document whose jobs say that they run, each twice: `telling_document NAME JOBS KEYS SECONDS`
# with more keys of its members.
telling_document() {
	cat <<-EOD
	name: $1
	members:
	  - {name: pool, count: 2, $3}
	jobs:
	  - name: sim
	    command: sh -c 'echo {s} >>$1.ran; sleep $4'
	    params: {s: {range: [0, $2]}}
	rules:
	  - {trigger: start, action: {name: submit, label: sim}}
	  - {trigger: metric, when: count.sim.success >= 3, action: {name: submit, label: sim, count: 1}}
	EOD
}

# Run such an ensemble with jobs that last until both members are up: `run_on_both NAME`.
run_on_both() {
	sed -i "s/; sleep [0-9.]*'/; until test -e $1.up; do sleep 0.1; done'/" $1.yaml &&
	grep -q $1.up $1.yaml &&
	{ flux ensemble run $1.yaml & run=$!; } &&
	wait_loaded $1 &&
	wait_both_up $1 pool &&
	touch $1.up &&
	wait $run
}

# Succeed if each job of such an ensemble has succeeded, and ran once: `each_ran_once NAME JOBS`.
each_ran_once() {
	is $2/0/0/0 "$(counts_of $1 sim)" &&
	is $2 "$(status_of $1 groups.sim.finished)" &&
	is $2 "$(wc -l <$1.ran)"
}
