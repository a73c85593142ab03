#!/bin/sh
test_description='What goes wrong in one ensemble stays there, also when the service is killed'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'functions raise, hang, exit, are killed and eat memory' '
	chaos user-code
'

test_expect_success FLUX 'the engine of a document raises an exception' '
	chaos engine-raises
'

test_done
