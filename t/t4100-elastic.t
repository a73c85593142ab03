#!/bin/sh
test_description='A Flux instance of configured hosts grows and shrinks'
. "$(dirname "$0")/lib/ensemble.sh"

. "$SHARNESS_TEST_SRCDIR/lib/elastic.sh"
test_under_elastic_flux

# Run scenarios of lib/elastic.py in this instance.
elastic() {
	project_python "$SHARNESS_TEST_SRCDIR/lib/elastic.py" "$@"
}

test_expect_success 'it grows from 1 to 3, runs what waits, shrinks, loses no job, grows' '
	elastic lifecycle
'

test_expect_success 'a change that a crash has cut short goes on when it is asked for again' '
	elastic again
'

test_expect_success 'a change is overtaken by the next one' '
	elastic overtaken
'

test_expect_success 'after the grace period jobs on nodes that go are canceled' '
	elastic grace
'

test_expect_success 'brokers that do not start are told of, with the output of the command' '
	elastic failing
'

test_expect_success 'nodes that somebody else has drained are left alone' '
	elastic others
'

test_expect_success 'a node that somebody undrains while it is to go stays' '
	elastic interference
'

test_expect_success 'sizes out of bounds and wrong settings are refused' '
	elastic bounds
'

test_expect_success 'a MiniCluster grows and shrinks by the gRPC service, and loses no job' '
	elastic minicluster
'

test_expect_success 'where the brokers form a chain it grows and shrinks, and others are not waited for' '
	flux_start_elastic "$chain" "$SHARNESS_BUILD_DIRECTORY/python" \
		"$SHARNESS_TEST_SRCDIR/lib/elastic.py" lifecycle failing </dev/null
'

test_expect_success 'an instance without configured hosts is refused' '
	flux start --test-size=1 "$SHARNESS_BUILD_DIRECTORY/python" \
		"$SHARNESS_TEST_SRCDIR/lib/elastic.py" discovered
'

test_done
