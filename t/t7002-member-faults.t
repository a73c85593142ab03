#!/bin/sh
test_description='members are killed, stopped, cancelled, and out of time: each job counts once'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'one ensemble goes through all of these: what a member had runs elsewhere, and counts once' '
	{ chaos --kills 1 members >out || { cat out && false; }; } &&
	cat out
'

# Succeed if that ensemble has gone through a scenario of t/fault: `gone_through NAME`.
gone_through() {
	grep "points met: .*\b$1 1" out
}

test_expect_success FLUX 'member-stopped: silence is no loss' '
	gone_through member-stopped
'

test_expect_success FLUX 'member-kill: the broker of one is killed' '
	gone_through member-kill
'

test_expect_success FLUX 'member-walltime: the time of one is up' '
	gone_through member-walltime
'

test_expect_success FLUX 'member-cancel: one is cancelled' '
	gone_through member-cancel
'

test_expect_success FLUX 'all-members: the brokers of all are killed' '
	gone_through all-members
'

test_expect_success FLUX 'service-and-member: the service is killed with them' '
	gone_through service-and-member
'

test_done
