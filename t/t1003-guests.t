#!/bin/sh
test_description='Guests: only the owner of the instance may ask, unless the site says otherwise'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

topics="load list status submit metrics why log pause resume terminate cancel unload rules action"

# Run a command as a user who does not own the instance.
as_guest() {
	(
		FLUX_HANDLE_ROLEMASK=0x2
		FLUX_HANDLE_USERID=9999
		export FLUX_HANDLE_ROLEMASK FLUX_HANDLE_USERID
		"$@"
	)
}

test_expect_success 'load the module and an ensemble' '
	cat >idle.yaml <<-EOD &&
	finish: never
	jobs:
	  - name: echo
	    command: echo hello
	EOD
	load_module &&
	flux ensemble load idle.yaml
'

test_expect_success 'a guest may ask for nothing' '
	for topic in $topics; do
		as_guest refused EPERM . $topic name=idle || return 1
	done
'

test_expect_success 'a guest is told so by the command' '
	as_guest test_must_fail flux ensemble list 2>err &&
	grep "^flux-ensemble: ERROR: " err &&
	test_must_fail grep Traceback err
'

test_expect_success 'the requests of guests have changed nothing' '
	is running "$(status_of idle state)" &&
	is 0/0/0/0 "$(counts_of idle echo)"
'

test_expect_success 'a site may open list and status' '
	flux module remove ensemble &&
	flux config load <<-EOD &&
	[ensemble]
	allow-guest-status = true
	EOD
	load_module &&
	wait_entry idle epoch &&
	as_guest rpc list >out &&
	is idle "$(json ensembles.0.name <out)" &&
	as_guest rpc status name=idle >out &&
	is running "$(json ensembles.0.state <out)"
'

test_expect_success 'everything else stays closed' '
	for topic in $topics; do
		case $topic in
		list | status) ;;
		*) as_guest refused EPERM . $topic name=idle || return 1 ;;
		esac
	done
'

test_expect_success 'a wrong type in the configuration opens nothing' '
	flux module remove ensemble &&
	flux config load <<-EOD &&
	[ensemble]
	allow-guest-status = "yes"
	EOD
	test_might_fail load_module &&
	as_guest test_must_fail rpc list &&
	flux dmesg | grep "allow-guest-status" &&
	test_might_fail flux module remove ensemble
'

test_done
