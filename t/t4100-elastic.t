#!/bin/sh
test_description='A Flux instance of configured hosts grows and shrinks'
. "$(dirname "$0")/lib/ensemble.sh"

. "$SHARNESS_TEST_SRCDIR/lib/elastic.sh"

# Run a scenario of lib/elastic.py in an instance of three hosts of which one is up.
#
# $1 - The scenario.
# $2 - The hosts, as in [bootstrap].
elastic() {
	flux_start_elastic "$2" "$SHARNESS_BUILD_DIRECTORY/python" \
		"$SHARNESS_TEST_SRCDIR/lib/elastic.py" "$1" </dev/null
}

test_expect_success FLUX 'it grows from 1 to 3, runs what waits, shrinks, loses no job, grows' '
	elastic lifecycle "$flat"
'

test_expect_success FLUX 'it does so too where the brokers form a chain' '
	elastic lifecycle "$chain"
'

test_expect_success FLUX 'a change that a crash has cut short goes on when it is asked for again' '
	elastic again "$flat"
'

test_expect_success FLUX 'a change is overtaken by the next one' '
	elastic overtaken "$flat"
'

test_expect_success FLUX 'after the grace period jobs on nodes that go are canceled' '
	elastic grace "$flat"
'

test_expect_success FLUX 'brokers that do not start are told of, with the output of the command' '
	elastic failing "$flat"
'

test_expect_success FLUX 'they are so where the brokers form a chain, and others are not waited for' '
	elastic failing "$chain"
'

test_expect_success FLUX 'nodes that somebody else has drained are left alone' '
	elastic others "$flat"
'

test_expect_success FLUX 'a node that somebody undrains while it is to go stays' '
	elastic interference "$flat"
'

test_expect_success FLUX 'sizes out of bounds and wrong settings are refused' '
	elastic bounds "$flat"
'

test_expect_success FLUX 'a MiniCluster grows and shrinks by the gRPC service, and loses no job' '
	elastic minicluster "$flat"
'

test_expect_success FLUX 'an instance without configured hosts is refused' '
	flux start --test-size=1 "$SHARNESS_BUILD_DIRECTORY/python" \
		"$SHARNESS_TEST_SRCDIR/lib/elastic.py" discovered
'

test_done
