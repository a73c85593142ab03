#!/bin/sh
test_description='kill -9 of the service and of what suggests points: nothing is lost, nothing is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'searches, early stopping, a generator in mid-ask, copies and predictions go on as without kills' '
	chaos --kills 4 search
'

test_done
