#!/bin/sh
test_description='kill -9 of a run on the local queue: no job is lost, none is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success 'killed at random times, with its helpers or without, it goes on with --resume' '
	chaos --kills 8 local
'

test_expect_success 'so it does with searches: the points are those of a run that is not killed' '
	chaos --kills 3 local-search
'

test_done
