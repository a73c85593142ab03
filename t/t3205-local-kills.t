#!/bin/sh
test_description='A run on the local queue is killed or ended: no job is lost, none is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success 'killed or ended at random times, with its helpers or without, it goes on with --resume' '
	chaos --kills 8 local
'

test_expect_success 'so it does with searches: the points are those of a run that is not killed' '
	chaos --kills 3 local-search
'

test_expect_success 'ended in each way while 24 trials of a search run, all are complete and none has failed' '
	chaos --kills 5 local-interrupted
'

test_expect_success 'ended in each way while jobs run again, each has run again once' '
	chaos --kills 4 local-rerun
'

test_done
