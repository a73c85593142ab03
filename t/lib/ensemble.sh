# Shared by every t/*.t: sourced after test_description is set.
#
#   test_description='what the file is about'
#   . "$(dirname "$0")/lib/ensemble.sh"
#   test_under_flux 4
#
# It brings in sharness and puts the virtual environment's commands on PATH. Where no flux
# is on PATH, every test of a file that calls test_under_flux, and every single test with
# the prerequisite FLUX, is skipped by its name. So such files keep all they do in tests.

SHARNESS_TEST_SRCDIR=$(cd "$(dirname "$0")" && pwd)
SHARNESS_TEST_DIRECTORY=$SHARNESS_TEST_SRCDIR
PROJECT=$(dirname "$SHARNESS_TEST_SRCDIR")
: "${SHARNESS_BUILD_DIRECTORY:=$PROJECT/.venv/bin}"
export PROJECT

. "$SHARNESS_TEST_SRCDIR/sharness/sharness.sh"
. "$SHARNESS_TEST_SRCDIR/lib/wait.sh"

# Where check.py has a process for them, short commands are forks of it (warm_server.py); in files
# that say cold_commands=t, and those that are run alone, they are not.
is_warm() {
	test -n "$WARM_COMMANDS" && test -z "$cold_commands"
}
if is_warm; then
	PATH=$SHARNESS_TEST_SRCDIR/lib/warm:$PATH
	FLUX_EXEC_PATH_PREPEND=$SHARNESS_TEST_SRCDIR/lib/warm_flux
	export FLUX_EXEC_PATH_PREPEND
fi

# Bytecode is kept, whatever is usual here: a service would compile all of the package anew.
unset PYTHONDONTWRITEBYTECODE

# What a user's configuration sets must not change what is tested.
unset FLUX_CONF_DIR FLUX_SHELL_RC_PATH FLUX_RC_EXTRA FLUX_MODPROBE_PATH_APPEND
XDG_CONFIG_HOME=/nonexistent
XDG_CONFIG_DIRS=/nonexistent
export XDG_CONFIG_HOME XDG_CONFIG_DIRS

# Run the rest of the file as the initial program of a Flux instance of its own.
#
# $1 - How many brokers the instance has.
# $2.. - More options for flux start.
test_under_flux() {
	if ! command -v flux >/dev/null; then
		flux_is_missing=t
		return
	fi
	test -z "$TEST_UNDER_FLUX_ACTIVE" || return 0
	size=$1
	shift
	cd "$SHARNESS_TEST_DIRECTORY" && rm -rf "$SHARNESS_TRASH_DIRECTORY"
	TEST_UNDER_FLUX_ACTIVE=t exec flux start --test-size="$size" "$@" \
		sh "$SHARNESS_TEST_SRCDIR/$(basename "$SHARNESS_TEST_FILE")" $(options_given)
}

# Print the options that this file was run with, for running it again.
options_given() {
	test "$verbose" = t && echo --verbose
	test "$debug" = t && echo --debug
	test "$immediate" = t && echo --immediate
	:
}

# Replaces the function of sharness: the prerequisites here are FLUX, MOUNT for file systems of a
# test's own, SLURM (slurm.sh), CC for what is compiled, MPI for MPI programs, and ROOT for tests that are other users, too,
# of files with test_under_flux.
test_skip_() {
	test_count=$(($test_count + 1))
	why='flux is not on PATH'
	case "$test_prereq" in
	'') test "$flux_is_missing" = t || return 1 ;;
	FLUX) ! command -v flux >/dev/null || return 1 ;;
	ROOT)
		if test "$flux_is_missing" != t
		then
			test "$(id -u)" != 0 || ! command -v setpriv >/dev/null || return 1
			why='only root can be another user, by setpriv'
		fi ;;
	MOUNT)
		if command -v flux >/dev/null
		then
			mkdir -p mount.try && mount -t tmpfs none mount.try 2>/dev/null &&
				umount -l mount.try && return 1
			why='no file system can be mounted here'
		fi ;;
	SLURM)
		why='flux is not on PATH'
		if command -v flux >/dev/null
		then
			test -n "$slurm_missing" || return 1
			why=$slurm_missing
		fi ;;
	CC)
		if command -v flux >/dev/null
		then
			! command -v cc >/dev/null || return 1
			why='there is no C compiler'
		fi ;;
	MPI)
		if command -v flux >/dev/null
		then
			command -v mpicc >/dev/null && command -v mpirun >/dev/null && return 1
			why='mpicc and mpirun are not on PATH'
		fi ;;
	*) error "bug in the test script: unknown prerequisite $test_prereq" ;;
	esac
	say_color skip "ok $test_count # skip $1 ($why)"
}

# Load the broker module as `flux module load` does (with the first argument `reload`, as
# `flux module reload` does), with more arguments for it.
load_module() {
	verb=load
	case "$1" in
	reload) verb=$1 && shift ;;
	esac
	"$SHARNESS_BUILD_DIRECTORY/python" -m flux_ensemble.bindings >module.json &&
	eval "$("$SHARNESS_BUILD_DIRECTORY/python" -c '
import json, shlex
module = json.load(open("module.json"))
print("set --", shlex.join([module["path"], *module["args"]]), "\"$@\"")')" &&
	flux module $verb "$@"
}

# Print how many broker modules are called ensemble: 0 or 1.
modules_loaded() {
	flux module list | grep -c "^ensemble "
}

# Have the process for short commands run one in its place: `warm KIND WORD ...` (warm_client.py).
warm() {
	"$SHARNESS_BUILD_DIRECTORY/python" -IS "$SHARNESS_TEST_SRCDIR/lib/warm_client.py" "$@"
}

# Run a script with the Python of the virtual environment: `project_python FILE ARGUMENT ...`.
project_python() {
	if is_warm; then
		warm python "$@"
	else
		"$SHARNESS_BUILD_DIRECTORY/python" "$@"
	fi
}

# Begin such a script in the background, as one process, whose id is $!.
begin_python() {
	is_warm && set -- -IS "$SHARNESS_TEST_SRCDIR/lib/warm_client.py" python "$@"
	"$SHARNESS_BUILD_DIRECTORY/python" "$@" &
}

# Print the id of the process that is the service.
service_pid() {
	rpc status | json service.pid
}

# Run a script of t/lib with Flux's Python: `flux_python rpc.py ensemble.list`.
flux_python() {
	script=$SHARNESS_TEST_SRCDIR/lib/$1
	shift
	if is_warm; then
		warm script "$script" "$@"
	else
		flux python "$script" "$@"
	fi
}

# Print one value of the JSON text on standard input: `... | json ensembles.0.state`.
json() {
	"$SHARNESS_BUILD_DIRECTORY/python" -IS -c '
import json, sys
value = json.load(sys.stdin)
for key in sys.argv[1].split("."):
    value = value[int(key) if isinstance(value, list) else key]
print(value if isinstance(value, str) else json.dumps(value))' "$1"
}

# Fail, with both values printed, unless $1 (what was expected) equals $2.
is() {
	test "$1" = "$2" || {
		echo >&2 "expected '$1', got '$2'"
		return 1
	}
}

# Print one value of an ensemble's status: `status_of hello rules.0.fired`.
status_of() {
	flux ensemble status --json "$1" | json "ensembles.0.$2"
}

# Print a group's counts as success/failed/canceled/timeout.
counts_of() {
	flux ensemble status --json "$1" | "$SHARNESS_BUILD_DIRECTORY/python" -IS -c '
import json, sys
group = json.load(sys.stdin)["ensembles"][0]["groups"][sys.argv[1]]
outcomes = [group[key] for key in ("success", "failed", "canceled", "timeout")]
assert group["attempts"] == sum(outcomes) >= group["finished"], group
print(*outcomes, sep="/")' "$2"
}

# Write the jobs of an ensemble, as the queue recorded them, to a file: `jobs_of hello jobs.json`.
jobs_of() {
	flux_python jobs.py "$1" >"$2"
}

# Run the Python script on standard input.
run_python() {
	"$SHARNESS_BUILD_DIRECTORY/python" - "$@"
}

# Wait until the eventlog of an ensemble has an entry: `wait_entry NAME ENTRY [COUNT]`.
wait_entry() {
	flux_python wait_entry.py "$@"
}

# Send one request to the service and print the response: `rpc submit name=hello group=echo`.
rpc() {
	topic=$1
	shift
	flux_python rpc.py "ensemble.$topic" "$@"
}

# Send a request that must fail: `refused ENOENT nobody status name=nobody` expects that
# errno, and a sentence that matches the second argument.
refused() {
	errno=$1
	sentence=$2
	shift 2
	test_expect_code 1 rpc "$@" >refused.out 2>&1 || {
		cat >&2 refused.out
		return 1
	}
	cat >&2 refused.out
	grep "^$errno .*$sentence" refused.out
}

# Wait until the service has an ensemble of this name: `run` in the background takes a while.
wait_loaded() {
	flux_python wait_status.py "$1"
}

# Wait until the service answers.
wait_service() {
	flux_python wait_status.py ""
}

# Wait until the status has some values: `wait_status instance.nodes 3`.
wait_status() {
	flux_python wait_status.py "" "$@"
}

# Wait until that of an ensemble has: `wait_status_of hello groups.echo.success 2`.
wait_status_of() {
	flux_python wait_status.py "$@"
}

# Wait until a process is gone: `wait_gone PID`.
wait_gone() {
	wait_until is_gone "$1"
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

# Wait until a file has a line that matches: `wait_line FILE PATTERN`.
wait_line() {
	wait_until grep -q "$2" "$1" 2>/dev/null
}

# Run a command in the background as a terminal would, so that SIGINT reaches it: a shell
# without job control starts background commands with SIGINT ignored. Its id is $pid.
interruptible() {
	"$SHARNESS_BUILD_DIRECTORY/python" -c '
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execvp(sys.argv[1], sys.argv[1:])' "$@" &
	pid=$!
}
