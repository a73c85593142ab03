#!/bin/sh
test_description='kill -9 of the service: no job is lost, none is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'killed at each named point of the protocol' '
	chaos --kills 11 kill-points
'

test_expect_success FLUX 'killed at random times with many jobs in flight' '
	chaos --kills 5 kill-200
'

test_expect_success FLUX 'killed again and again with its workers, ensemble after ensemble in one instance' '
	chaos --kills 5 rounds
'

test_expect_success FLUX 'the record has each job once, as the journal of the queue has it' '
	chaos record
'

test_expect_success FLUX 'killed while jobs run again, each does once and what was before is replaced' '
	chaos --kills 4 rerun
'

test_expect_success FLUX 'the broker module is killed' '
	chaos --kills 1 kill-module
'

test_expect_success FLUX 'the service is killed under the keeper, which starts it again' '
	chaos --kills 2 kill-kept
'

test_expect_success FLUX 'the service is stopped for a while and goes on' '
	chaos stopped
'

test_done
