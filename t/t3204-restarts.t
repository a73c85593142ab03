#!/bin/sh
test_description='The whole instance ends, well or badly, and starts again'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

for scenario in restart dump-restore broker-crash broker-crash-strict interrupted members-restart; do
	test_expect_success FLUX "$scenario: no job is lost, none is there twice" "chaos $scenario"
done

test_done
