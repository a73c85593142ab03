#!/bin/sh
test_description='kill -9 of the service and of samplers: no trial is lost, none is there twice'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'a search has the points that it has without kills' '
	chaos --kills 4 search
'

test_done
