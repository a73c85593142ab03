#!/bin/sh
test_description='Kinds of searches with 24 jobs under way, of which whatever runs them is killed'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'the service and the broker are killed: all come to what they come to without kills' '
	chaos --kills 2 search-kinds
'

test_expect_success FLUX 'so they do where all members are killed' '
	chaos --kills 1 member-search-kinds
'

test_expect_success 'so they do where a local run is killed' '
	chaos --kills 2 local-search-kinds
'

test_done
