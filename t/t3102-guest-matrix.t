#!/bin/sh
test_description='Guests: every request there is, made from the table of requests'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Run a command as a user who does not own the instance, whose id is $1.
as_guest() {
	(
		FLUX_HANDLE_ROLEMASK=0x2
		FLUX_HANDLE_USERID=$1
		export FLUX_HANDLE_ROLEMASK FLUX_HANDLE_USERID
		shift
		"$@"
	)
}

# Send every request as a guest.
guest_matrix() {
	as_guest 9999 "$SHARNESS_BUILD_DIRECTORY/python" \
		"$SHARNESS_TEST_SRCDIR/lib/guest_matrix.py" "$@"
}

# What a guest must not learn: a command, a variable, a directory, an error.
secrets="hush-command hush-variable hush-directory hush-error"

# Write down all that an owner sees of the ensembles, to a file: $1.
owner_sees() {
	flux ensemble list -n -o "{name} {state} {active} {waiting} {finished}" >"$1" &&
	flux ensemble status --json plan | json ensembles >>"$1" &&
	flux ensemble log --json plan >>"$1"
}

test_expect_success 'an ensemble with secrets, one of them in an error' '
	mkdir hush-directory &&
	cat >hush-directory/plan.yaml <<-EOD &&
	finish: never
	jobs:
	  - {name: hidden, command: echo hush-command}
	rules:
	  - {trigger: start, action: {name: submit, label: hidden}}
	  - {trigger: start, action: {name: custom, label: wrong}}
	custom: |
	  def wrong(**kwargs): raise ValueError("hush-error")
	EOD
	load_module &&
	(cd hush-directory && SECRET=hush-variable flux ensemble load plan.yaml) &&
	wait_entry plan custom-error &&
	wait_entry plan outcome &&
	flux queue idle --timeout=300 &&
	flux ensemble status --json plan | grep hush-error
'

test_expect_success 'without a word of the site guests are refused all of it' '
	owner_sees before &&
	guest_matrix closed plan $secrets
'

test_expect_success 'and it has changed nothing' '
	owner_sees after &&
	test_cmp before after
'

test_expect_success 'where list and status are open they tell what they may' '
	flux module remove ensemble &&
	flux config load <<-EOD &&
	[ensemble]
	allow-guest-status = true
	EOD
	load_module &&
	wait_entry plan epoch &&
	owner_sees before &&
	guest_matrix open plan $secrets >matrix &&
	cat matrix &&
	grep "^list {} ->  .*\"plan\"" matrix &&
	grep "^jobs {\"name\": \"plan\"} ->  .*\"outcome\": \"success\"" matrix &&
	grep "^status {\"name\": \"plan\"} ->  .*\"hidden\"" matrix
'

test_expect_success 'and nothing has changed' '
	owner_sees after &&
	test_cmp before after
'

test_expect_success 'a guest does not end the stream of the owner' '
	cat >disconnect.py <<-EOD &&
	import flux
	handle = flux.Flux()
	for tag in range(1, 20):
	    for topic in ("ensemble.log-cancel", "ensemble.disconnect"):
	        handle.rpc(topic, {"matchtag": tag}, flags=flux.constants.FLUX_RPC_NORESPONSE)
	EOD
	flux ensemble log --follow plan >followed & pid=$! &&
	as_guest 9999 flux python disconnect.py &&
	flux ensemble terminate plan &&
	wait $pid &&
	grep finish followed
'

test_expect_success 'a guest who asks without end is told to wait, and the owner is not' '
	cat >ask.py <<-EOD &&
	import errno, flux
	handle = flux.Flux()
	futures = [handle.rpc("ensemble.list", {}) for _ in range(200)]
	told = []
	for future in futures:
	    try:
	        future.get()
	    except OSError as error:
	        assert error.errno == errno.EAGAIN, error
	        told.append(error.strerror)
	print(len(told), told[:1])
	EOD
	as_guest 9998 flux python ask.py >out &&
	cat out &&
	grep "^1[0-9][0-9] .*too many requests of guests" out &&
	flux python ask.py >out &&
	is "0 []" "$(cat out)"
'

test_expect_success 'a payload of a guest is short' '
	as_guest 9997 refused EINVAL "at most 4096 bytes" status name=$(printf "%05000d" 0)
'

test_done
