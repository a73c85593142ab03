#!/bin/sh
test_description='Parts of Flux go away under an ensemble and come back'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/chaos.sh"

test_expect_success FLUX 'others cannot be started beside the service' '
	chaos second-service
'

for scenario in module-reload ingest-reload queue-disabled ids-again job-manager-reload purge; do
	test_expect_success FLUX "$scenario: no job is lost, none is there twice" "chaos $scenario"
done

for pair in "3 service-and-job-manager" "2 service-and-ingest" "1 service-and-keeper"; do
	test_expect_success FLUX "${pair#* }: both die, one after the other" "chaos --kills $pair"
done

test_done
