#!/bin/sh
test_description='workers in Slurm that are not as they should be, or of another home'
cold_commands=t
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"

try_slurm
unset FLUX_URI
XDG_STATE_HOME=$PWD/state && export XDG_STATE_HOME

# A document over workers in Slurm, which ends with its first member that is lost:
# `on_workers NAME JOBS KEYS COMMAND`.
on_workers() {
	>$1.ran &&
	cat >$1.yaml <<-EOD
		name: $1
		members:
		  - {name: hpc, from: slurm, runs: tasks, exclusive: false, cores: 2, $3}
		jobs:
		  - name: sim
		    command: sh -c '$4'
		    params: {s: {range: [0, $2]}}
		rules:
		  - {trigger: start, action: {name: submit, label: sim}}
		  - {trigger: member-lost, action: {name: terminate, cancel: true}}
	EOD
}

# Start a home: `begin NAME`; its process is $home.
begin() {
	flux-ensemble run --resume $1.yaml >>$1.out 2>&1 & home=$!
}

# Run the batch script of a worker with its program changed: `with_script SED-SCRIPT COMMAND...`.
with_script() {
	mkdir -p changed && printf "%s\n" "$1" >changed/script && shift &&
	cat >changed/sbatch <<-EOD && chmod +x changed/sbatch &&
		#!/bin/sh
		sed -f "$PWD/changed/script" | $(command -v sbatch) "\$@"
	EOD
	PATH="$PWD/changed:$PATH" "$@"
}

# A worker that does something first: `patched_worker FILE`, and that as standard input.
patched_worker() {
	{
		cat &&
		echo 'import runpy, sys' &&
		echo 'runpy.run_module("flux_ensemble.service.worker", run_name="__main__")'
	} >$1
}

test_expect_success SLURM 'a node without the package is told by the output of its job' '
	on_workers bare 2 "duration: 5m" true &&
	rm -f slurm-*.out &&
	with_script "s,-P -m,-I -S -m," flux-ensemble run bare.yaml >bare.out 2>&1 &&
	grep "hpc.0 is lost.*: its job in Slurm is FAILED (NonZeroExitCode)" bare.out &&
	grep "No module named .*flux_ensemble" slurm-*.out
'

test_expect_success SLURM 'a worker of another version is told so, and so is its user' '
	patched_worker older.py <<-\EOD &&
		import flux_ensemble
		from flux_ensemble.queues.nested import link
		flux_ensemble.__version__, link.FORMAT = "9.9", link.FORMAT + 1
	EOD
	on_workers older 2 "duration: 5m" "echo {s} >>older.ran" &&
	rm -f slurm-*.out &&
	with_script "s,-P -m flux_ensemble.service.worker,older.py," flux-ensemble run older.yaml >older.out 2>&1 &&
	grep "hpc.0.*its service is flux-ensemble 9.9, whose messages have format" older.out &&
	grep "flux-ensemble: member .hpc.0.: its service is flux-ensemble 9.9" slurm-*.out &&
	test_must_be_empty older.ran && wait_until slurm_is_quiet
'

test_expect_success SLURM 'a worker whose clock is an hour ahead is told so, and runs nothing' '
	patched_worker ahead.py <<-\EOD &&
		import time
		time.time = lambda now=time.time: now() + 3600
	EOD
	on_workers ahead 2 "duration: 5m" "echo {s} >>ahead.ran" &&
	with_script "s,-P -m flux_ensemble.service.worker,ahead.py," flux-ensemble run ahead.yaml >ahead.out 2>&1 &&
	grep "member hpc.0 is not up: its clock is 1h ahead of this machine.s, .*: set the clocks" ahead.out &&
	test_must_be_empty ahead.ran && wait_until slurm_is_quiet
'

test_expect_success SLURM 'a worker of another ensemble is refused, and its home does not have it' '
	on_workers mine 2 "duration: 5m" "while test ! -e go; do sleep 0.1; done; echo {s} >>mine.ran" &&
	on_workers yours 2 "duration: 5m" "echo {s} >>yours.ran" &&
	begin mine && mine=$home &&
	wait_until grep "hpc.0 is up" mine.out &&
	port=$(sed "s/.*\"port\": \([0-9]*\).*/\1/" $(find state -path "*mine*" -name home)) &&
	with_script "s/\"port\": [0-9]*/\"port\": $port/" begin yours &&
	wait_until grep "a call of .* is refused: " mine.out &&
	! grep "hpc.0 is up" yours.out &&
	kill -INT $home && test_expect_code 130 wait $home &&
	>go && wait $mine &&
	is 2 "$(sort -u mine.ran | wc -l)" && is 2 "$(wc -l <mine.ran)" && test_must_be_empty yours.ran &&
	wait_until slurm_is_quiet
'

test_expect_success SLURM 'a port that another program has when the home comes back is named' '
	on_workers taken 4 "duration: 5m" "while test ! -e went; do sleep 0.1; done; echo {s} >>taken.ran" &&
	begin taken && wait_until grep "hpc.0 is up" taken.out &&
	kill -KILL $home && test_expect_code 137 wait $home &&
	port=$(sed "s/.*\"port\": \([0-9]*\).*/\1/" $(find state -path "*taken*" -name home)) &&
	{ python3 -c "
import socket, time
with socket.create_server((\"\", $port)):
    open(\"listens\", \"w\").close()
    time.sleep(600)" & other=$!; } &&
	wait_until test -e listens &&
	test_expect_code 1 flux-ensemble run --resume taken.yaml >taken.again 2>&1 &&
	grep "cannot listen on port $port, at which its members call: Address already in use$" taken.again &&
	kill $other && { wait $other || :; } &&
	begin taken && >went && wait $home &&
	is 4 "$(sort -u taken.ran | wc -l)" && is 4 "$(wc -l <taken.ran)" && ! grep "is lost" taken.out
'

# A home that takes a silent worker for lost after some seconds.
cat >hasty.py <<-\EOD
	from flux_ensemble.service import home
	home.SILENCE_SECONDS, home.Home.__init__.__kwdefaults__["reconnect"] = 11.0, 2.0
	from flux_ensemble.cli.main import main
	main()
EOD

test_expect_success SLURM 'a worker that comes back after it was given up is told so, and what it did counts for nothing' '
	on_workers late 6 "count: {min: 1, max: 2}, duration: 5m" "echo {s} >>late.ran; sleep 1" &&
	sed -i "s/{name: terminate, cancel: true}/{name: grow, label: hpc}/" late.yaml &&
	mkdir deaf && printf "#!/bin/sh\necho deaf >&2; exit 1\n" >deaf/scancel && chmod +x deaf/scancel &&
	rm -f slurm-*.out &&
	{ PATH="$PWD/deaf:$PATH" python hasty.py run --resume late.yaml >>late.out 2>&1 & home=$!; } &&
	wait_until has_lines late.ran 1 &&
	worker=$(pgrep -f "flux_ensemble[.]service[.]worker" | while read pid; do
		test "$(readlink /proc/$pid/cwd)" != "$PWD" || echo $pid; done) &&
	is 1 "$(echo "$worker" | wc -l)" && kill -STOP $worker &&
	wait_until grep "hpc.0 is lost" late.out &&
	kill -CONT $worker &&
	wait_until test ! -e /proc/$worker &&
	wait_until eval "grep \"has no member .hpc.0.\" slurm-*.out" &&
	wait $home &&
	is 6 "$(sort -u late.ran | wc -l)" &&
	flux-ensemble jobs late -n -o "{outcome}" >outcomes &&
	is 6 "$(grep -c ^success outcomes)" && ! grep -E "^(failed|timeout|canceled)" outcomes &&
	wait_until slurm_is_quiet
'

stop_slurm

test_done
