#!/bin/sh
test_description='kill -9 of a run on the local queue: no job is lost, none is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success 'killed at random times, with its helpers or without, it goes on with --resume' '
	chaos --kills 8 local
'

test_done
