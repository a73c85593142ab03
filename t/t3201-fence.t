#!/bin/sh
test_description='kill -9 while hundreds of submissions are on their way: what the fence is for'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'with the fence no job is there twice' '
	chaos --kills 1 kill-slow-ingest
'

test_expect_success FLUX 'without the fence jobs are there twice, and that is noticed' '
	chaos --kills 4 negative-control
'

test_done
