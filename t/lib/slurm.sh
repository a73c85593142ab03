# A Slurm cluster on this machine, for tests: munge with a key of its own, a controller, and two
# nodes, or as many as $slurm_nodes says.
#
#   . "$SHARNESS_TEST_SRCDIR/lib/slurm.sh"      # after ensemble.sh
#   try_slurm
#   test_expect_success SLURM 'something on it' '...'
#   ... and at the end: stop_slurm
#
# All of it listens on loopback, on ports that were free. Its files are in the directory $slurm,
# whose path has no space. With $slurm_home and $slurm_n1 the controller and n1 have these addresses
# instead, and $slurm_within is the command within which n1 runs.

PATH=$PATH:/usr/sbin
slurm=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
: "${slurm_nodes:=2}"

# Print so many TCP ports that nobody listens on.
free_ports() {
	python3 -c '
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))' "$1"
}

start_slurm() {
	chmod 755 "$slurm" &&
	mkdir "$slurm/munge" "$slurm/state" "$slurm/spool" "$slurm/bin" && chmod 700 "$slurm/munge" &&
	host=$(hostname -s) && user=$(id -un) &&
	set -- $(free_ports $((slurm_nodes + 1))) &&
	(umask 077 && head -c 1024 /dev/urandom >"$slurm/munge/key") &&
	cat >"$slurm/slurm.conf" <<-EOD &&
		ClusterName=test
		SlurmctldHost=$host(${slurm_home:-127.0.0.1})
		SlurmctldPort=$1
		SlurmctldPidFile=$slurm/controller.pid
		SlurmctldLogFile=$slurm/controller.log
		SlurmdPidFile=$slurm/%n.pid
		SlurmdLogFile=$slurm/%n.log
		SlurmdSpoolDir=$slurm/spool/%n
		StateSaveLocation=$slurm/state
		SlurmUser=$user
		SlurmdUser=$user
		AuthInfo=socket=$slurm/munge/socket
		SlurmdParameters=config_overrides
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		MpiDefault=pmi2
		SelectType=select/cons_tres
		SelectTypeParameters=CR_Core
		PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
	EOD
	shift && address=${slurm_n1:-127.0.0.1} &&
	for each in $(seq $slurm_nodes); do
		echo "NodeName=n$each NodeHostname=$host NodeAddr=$address Port=$1 CPUs=8" &&
		shift && address=127.0.0.1 || return 1
	done >>"$slurm/slurm.conf" &&
	# The broker takes SLURM_CONF out of the environment of what asks Slurm for the time left.
	# A working directory with a squeue.sh has that before it, and so a squeue that is late or wrong; so
	# it is with the others.
	for each in squeue sbatch scontrol scancel srun; do
		cat >"$slurm/bin/$each" <<-EOD || return 1
			#!/bin/sh
			test ! -e $each.sh || . ./$each.sh
			SLURM_CONF=$slurm/slurm.conf exec $(command -v $each) "\$@"
		EOD
	done &&
	chmod +x "$slurm"/bin/* &&
	SLURM_CONF=$slurm/slurm.conf && PATH=$slurm/bin:$PATH && export SLURM_CONF PATH &&
	munged --force --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" \
		--pid-file="$slurm/munge/pid" --log-file="$slurm/munge/log" \
		--seed-file="$slurm/munge/seed" &&
	slurmctld -i && within=$slurm_within &&
	for each in $(seq $slurm_nodes); do
		$within slurmd -N "n$each" && within= || return 1
	done &&
	wait_until all_idle
}

# Have the controller start anew, without jobs, and with further lines of configuration in place of
# those of the last time: `slurm_with LINE...`.
slurm_with() {
	test -e "$slurm/base.conf" || cp "$slurm/slurm.conf" "$slurm/base.conf" &&
	{ cat "$slurm/base.conf" && printf "%s\n" "$@"; } >"$slurm/slurm.conf" &&
	kill "$(cat "$slurm/controller.pid")" && wait_until test ! -e "$slurm/controller.pid" &&
	slurmctld -c && wait_until all_idle
}

all_idle() {
	test "$(sinfo -h -t idle -o %D 2>/dev/null)" = $slurm_nodes
}

# Start it; where that fails, tests with the prerequisite SLURM are skipped with the reason.
try_slurm() {
	slurm_missing=
	if ! command -v slurmctld >/dev/null || ! command -v munged >/dev/null; then
		slurm_missing='slurmctld and munged are not on PATH'
	elif ! start_slurm >"$slurm/start.log" 2>&1; then
		slurm_missing=$(slurm_trouble)
	fi
}

# Print the reason, as far as its daemons wrote one.
slurm_trouble() {
	echo "no Slurm starts here: $(cat "$slurm"/*.log 2>/dev/null | grep -iE "fatal|error" | tail -n 1)"
}

# Succeed if Slurm has no job that may still run.
slurm_is_quiet() {
	squeue -h -o %i >queued 2>/dev/null && test_must_be_empty queued
}

# End its daemons, by the ids that they wrote down, and all that is still in its queue.
stop_slurm() {
	command -v scancel >/dev/null && scancel --me 2>/dev/null
	for each in "$slurm"/n*.pid "$slurm"/controller.pid "$slurm"/munge/pid; do
		test ! -e "$each" || kill "$(cat "$each")" 2>/dev/null
	done
	for each in "$slurm"/controller.pid "$slurm"/munge/pid; do
		wait_until test ! -e "$each"
	done
	rm -rf "$slurm"
}
