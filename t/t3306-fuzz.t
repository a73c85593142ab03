#!/bin/sh
test_description='Hostile requests, jobs and memos: a short run of the fuzzer (make fuzz is the long one)'
. "$(dirname "$0")/lib/ensemble.sh"

fuzz() {
	"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/fuzz/fuzz_requests.py" "$@"
}

test_expect_success FLUX 'some thousand hostile requests disturb nobody' '
	fuzz --inputs 2000 --seed 1
'

test_expect_success FLUX 'what led to a finding can be played again' '
	cat >steps.jsonl <<-EOD &&
	{"round": 0, "client": "owner", "topic": "ensemble.list", "payload": "{}", "by": "ask"}
	{"round": 1, "client": "owner", "topic": "ensemble.list", "payload": "{}", "by": "ask", "refused": true}
	{"round": 2, "do": "kill", "client": "owner", "by": "restart"}
	EOD
	test_expect_code 1 fuzz --replay steps.jsonl >out &&
	cat out &&
	grep "^not refused: ensemble.list" out &&
	grep "^replayed 3 steps, 1 findings" out
'

test_done
