#!/bin/sh
test_description='members: services of their own, which call that of the ensemble'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/members.sh"
test_under_flux 3

# Write a document whose members have services of their own: `document NAME JOBS`.
document() {
	telling_document "$1" $2 "service: child" 0.2
}

# Print the id of the job that a member is: `member NAME MEMBER`.
member() {
	flux jobs -n -o "{id}" --name="$1:$2"
}

# Print the process of a member's service, and fail if there is none: `child JOB`.
child() {
	run_python "$(flux uri --local "$1")" <<-'EOD'
	import pathlib, sys
	for process in pathlib.Path("/proc").glob("[0-9]*"):
	    try:
	        words = (process / "cmdline").read_bytes().split(b"\0")
	        variables = (process / "environ").read_bytes().split(b"\0")
	    except OSError:
	        continue
	    if b"--attach" in words and b"FLUX_URI=" + sys.argv[1].encode() in variables:
	        sys.exit(print(process.name))
	sys.exit(1)
	EOD
}

# Succeed if the service of a member is another process: `is_replaced JOB PROCESS`.
is_replaced() {
	now=$(child "$1") && test "$now" != "$2"
}

test_expect_success 'load the module' '
	load_module
'

test_expect_success 'where ssh reaches no other node members have services of their own by themselves' '
	cat >far.yaml <<-EOD &&
	members: [{name: pool, count: 2}]
	jobs: [{name: a, command: "sh until-up"}]
	rules: [{trigger: start, action: {name: submit, label: a, count: 2}}]
	EOD
	echo "until test -e up; do sleep 0.1; done" >until-up &&
	cat >script <<-EOD &&
	flux ensemble load far.yaml && until flux ensemble log far | grep "pool.1 is up"; do sleep 0.1; done &&
	touch up && flux ensemble wait far && flux ensemble log far && flux ensemble status far --json
	EOD
	FLUX_SSH=false flux start --test-size=2 --test-hosts=here,there sh ./script >out 2>&1 &&
	cat out &&
	grep "\"service\": \"child\"" out &&
	grep "pool submit their jobs themselves (service: child), since .false there true. fails: exit code 1" out &&
	grep "pool.1 is up" out &&
	sed -i "s/count: 2}\]/count: 2, service: parent}]/" far.yaml &&
	cat >script <<-EOD &&
	flux ensemble load far.yaml && flux ensemble log far && flux ensemble cancel far && flux queue drain
	EOD
	FLUX_SSH=false flux start --test-size=2 --test-hosts=here,there sh ./script >out &&
	cat out &&
	test_must_fail grep themselves out
'

test_expect_success 'the services of members submit the jobs of an ensemble, and tell what they do' '
	document shared 20 >shared.yaml &&
	run_on_both shared &&
	each_ran_once shared 40 &&
	is 20 "$(sort -u shared.ran | wc -l)" &&
	flux ensemble jobs -n -o "{id}" shared >ids &&
	is 40 "$(grep -c "^pool.[01]:" ids)" &&
	grep -q "^pool.0:" ids &&
	grep -q "^pool.1:" ids &&
	flux job info $(flux jobs -a -n -o "{id}" --name=shared:pool.0) jobspec | grep -q "serve --attach"
'

test_expect_success 'members end with the ensemble' '
	wait_quiet &&
	is 2 "$(flux jobs -a -n -o "{result}" | grep -c COMPLETED)"
'

test_expect_success 'unload the module' '
	flux module remove ensemble
'

test_expect_success 'the service of a member is killed: another one goes on, and no job runs twice' '
	document child 40 >child.yaml &&
	serve &&
	{ flux ensemble run child.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded child &&
	for lines in 3 30
	do
		wait_until has_lines child.ran $lines &&
		job=$(member child pool.0) &&
		before=$(child $job) &&
		kill -9 $before &&
		wait_until is_replaced $job $before || return 1
	done &&
	wait $run &&
	each_ran_once child 80 &&
	is 2 "$(entries child member-start)" &&
	is 0 "$(entries child member-lost)"
'

test_expect_success 'the service of the ensemble is killed: those of the members wait for the next' '
	document parent 40 >parent.yaml &&
	{ flux ensemble run parent.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded parent &&
	for lines in 0 5 30
	do
		wait_until has_lines parent.ran $lines &&
		kill -9 $serve &&
		serve || return 1
	done &&
	wait $run &&
	each_ran_once parent 80 &&
	is 2 "$(entries parent member-start)" &&
	is 0 "$(entries parent member-lost)"
'

test_expect_success 'a member is killed: its jobs run elsewhere, and each counts once' '
	document member 40 >member.yaml &&
	{ flux ensemble run member.yaml >run.log 2>&1 & run=$!; } &&
	wait_loaded member &&
	wait_entry member member-up 2 &&
	wait_until has_lines member.ran 5 &&
	kill -9 $(FLUX_URI=$(flux uri --local $(member member pool.0)) flux getattr broker.pid) &&
	wait $run &&
	is 80 "$(status_of member groups.sim.success)" &&
	is 80 "$(status_of member groups.sim.finished)" &&
	is 40 "$(sort -u member.ran | wc -l)" &&
	is 1 "$(entries member member-lost)"
'

# Make a `flux ensemble` whose services of members have another format, until `same` is there.
mkdir other &&
cat >other/flux-ensemble <<-EOD
#!/bin/sh
case "\$*" in
*--attach*) test -e "$PWD/same" || set -- -c "
import sys
import flux_ensemble
from flux_ensemble.cli.main import main
from flux_ensemble.queues.nested import link
flux_ensemble.__version__ = '9.9.9'
link.FORMAT = 99
sys.exit(main())" "\$@" ;;
esac
test "\$1" = -c || set -- "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" "\$@"
exec "$SHARNESS_BUILD_DIRECTORY/python" "\$@"
EOD
chmod +x other/flux-ensemble

# Succeed if the services of both members were refused.
are_refused() {
	said=$(flux dmesg | grep "other: member .*its service is flux-ensemble 9.9.9, whose messages have format 99, and this one") &&
	is 2 "$(echo "$said" | wc -l)"
}

test_expect_success 'a service with another format is refused until there is one with the same' '
	document other 4 >other.yaml &&
	PATH="$PWD/other:$PATH" flux ensemble load other.yaml &&
	wait_until are_refused 2>err &&
	is 0 "$(entries other member-up)" &&
	touch same &&
	flux ensemble wait other &&
	each_ran_once other 8 &&
	is 2 "$(entries other member-up)" &&
	is 0 "$(entries other member-lost)"
'

test_expect_success 'a member whose service stays so is lost, and the log says why' '
	rm same &&
	flux config load <<-EOD &&
	[ensemble]
	reconnect-limit = "30s"
	EOD
	kill $serve &&
	serve &&
	document never 4 >never.yaml &&
	cat >>never.yaml <<-EOD &&
	  - {trigger: member-lost, action: {name: terminate, cancel: true}}
	EOD
	PATH="$PWD/other:$PATH" flux ensemble load never.yaml &&
	flux ensemble wait never &&
	flux ensemble log never >log &&
	grep "member-lost.*its service is flux-ensemble 9.9.9, whose messages have format 99, and this one" log &&
	flux dmesg >dmesg &&
	test_must_fail grep Traceback dmesg
'

test_expect_success 'a process that is no member is told so' '
	test_must_fail flux ensemble serve --attach "{}" 2>err &&
	grep "this Flux instance is in no other" err &&
	kill $serve
'

test_done
