#!/bin/sh
test_description='members that fail everything, that jobs leave, and to which the way is lost'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'black-hole: a member on which everything fails is drained, and its jobs run elsewhere' '
	chaos --kills 1 black-hole
'

test_expect_success FLUX 'member-moved: jobs that begin while they are asked to leave a member stay, others leave; a control' '
	chaos member-moved member-moved-unread
'

test_expect_success FLUX 'way-lost: the way to an instance elsewhere is lost: nothing is lost, or runs twice' '
	chaos --kills 1 way-lost
'

test_expect_success FLUX 'child-services: services of members are killed, and that of the ensemble' '
	chaos --kills 1 child-services
'

test_expect_success FLUX 'tasks: workers are killed, what starts their tasks, and the service' '
	chaos --kills 1 tasks
'

test_expect_success FLUX 'member-search: all members of a search are killed; no trial fails or is lost' '
	chaos member-search
'

test_expect_success FLUX 'orphans, member-placed: jobs outlive the broker of their member, and commits fail: nothing counts twice' '
	chaos orphans member-placed
'

test_done
