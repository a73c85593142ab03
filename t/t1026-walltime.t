#!/bin/sh
test_description='An allocation ends, and the next one goes on with what was left'
. "$(dirname "$0")/lib/ensemble.sh"

# Submit the example to the enclosing instance, and wait until it is over.
#
# $1 - The time limit.
# $2 - Where its output goes.
cat >allocation.sh <<-EOD
	id=\$(flux batch -n1 -t "\$1" --broker-opts=-Sstatedir="$PWD/state" \
		--output="$PWD/\$2" --cwd="$PROJECT/examples" "$PROJECT/examples/two-allocations.sh")
	flux job wait-event -t 240 "\$id" clean >/dev/null
	cat "$PWD/\$2"
EOD

test_expect_success FLUX 'two-allocations.sh: an allocation that is too short says what is left' '
	mkdir state &&
	flux start sh ./allocation.sh 20s first &&
	grep "the allocation ends in 1s: no more jobs are started" first &&
	grep "the allocation has expired, [0-9]* of 60 jobs are left" first &&
	grep "an instance with the statedir $PWD/state goes on with them" first
'

test_expect_success FLUX 'the next one goes on with it, and completes' '
	flux start sh ./allocation.sh 5m second &&
	grep "there is time again, for 4m .*s: what was left goes on" second &&
	grep "^two-allocations: completed" second
'

test_expect_success FLUX 'each job succeeded once, and none counts as timed out' '
	grep "^simulate " second >counts &&
	set -- $(cat counts) &&
	is 60 "$3" && is 0 "$4" && is 0 "$6" && is "$2" "$((60 + $5))"
'

test_done
