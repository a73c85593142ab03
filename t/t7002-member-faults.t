#!/bin/sh
test_description='members are killed, stopped, cancelled, and out of time: each job counts once'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'one of each, and the service dies too: what a member had runs elsewhere, and counts once' '
	chaos --kills 1 members
'

test_done
