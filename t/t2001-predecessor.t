#!/bin/sh
test_description='Documents of the predecessor run as they are'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 4

documents="$SHARNESS_TEST_SRCDIR/predecessor"

# Run a document of the predecessor with shorter sleeps, and compare its counts.
run_document() {
	name=$1
	shift
	sed "s/sleep 10/sleep 0.2/" "$documents/$name.yaml" >"$name.yaml" &&
	flux ensemble run --timeout 300 "$name.yaml" >"$name.out" &&
	flux queue idle --timeout=300 &&
	for expected; do
		is "${expected#*=}" "$(counts_of "$name" "${expected%%=*}")" || return 1
	done
}

test_expect_success 'hello-world' '
	run_document hello-world sleep=5/0/0/0 echo=5/0/0/0
'

test_expect_success 'hello-world prints what the predecessor printed' '
	grep "^ => trigger count.sleep.success" hello-world.out &&
	grep "^   submit echo  *(name:echo),(command:echo hello world),(count:5),(nodes:1)" \
		hello-world.out
'

test_expect_success 'terminate-example' '
	run_document terminate-example sleep=5/0/0/0 echo=5/0/0/0
'

test_expect_success 'backoff-example' '
	run_document backoff-example sleep=5/0/0/0 echo-repetition=6/0/0/0 echo-backoff=2/0/0/0
'

test_expect_success 'heartbeat-example' '
	run_document heartbeat-example sleep=5/0/0/0 echo=10/0/0/0 big-sleep=0/0/0/0
'

test_expect_success 'grow-shrink-example needs an instance that can change its nodes' '
	test_expect_code 2 flux ensemble run "$documents/grow-shrink-example.yaml" 2>err &&
	grep "grow-shrink-example.yaml:[0-9]*: .*grow" err
'

test_expect_success 'the module is removed' '
	flux module remove ensemble
'

test_done
