#!/bin/sh
test_description='An allocation ends, and the next one goes on with what was left'
. "$(dirname "$0")/lib/ensemble.sh"

# Submit ensembles to the enclosing instance, each in an allocation of its own, and wait until they
# are over.
#
# $1 - Where their output goes.
# $2.. - NAME=LIMIT of each: the example two-allocations, or the search below.
cat >allocation.sh <<-EOD
	where=\$1
	shift
	for one; do
		name=\${one%=*}
		directory="$PWD"
		test \$name = search || directory="$PROJECT/examples"
		ids="\$ids \$(flux batch -n1 -t \${one#*=} \
			--broker-opts=-Sstatedir="$PWD/state-\$name" --output="$PWD/\$name.\$where" \
			--cwd="\$directory" "\$directory/\$name.sh")"
	done
	for id in \$ids; do
		flux job wait-event -t 500 \$id clean >/dev/null
	done
	cat "$PWD"/*.\$where
EOD

# Its fifth trial goes on when it may.
cat >search.yaml <<-EOD
	seed: 7
	search:
	  - {id: x, group: trial, variables: {x: {low: 0, high: 1}}, minimize: loss, trials: 12}
	jobs:
	  - name: trial
	    command:
	      - sh
	      - -c
	      - |
	        echo {x} >>ran
	        until test -e go-on || test \$(wc -l <ran) -lt 5; do sleep 0.1; done
	        "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" memo loss={x}
	rules:
	  - {trigger: start, action: {name: search, label: x}}
EOD

# The numbers of trials, and their points.
trials="sort:trial {trial},{params.x},{trial_state}"

cat >search.sh <<-EOD
	#!/bin/sh
	flux ensemble supervise
	if flux ensemble status search >/dev/null 2>&1; then
		flux ensemble watch search
	else
		flux ensemble run search.yaml
	fi
	flux ensemble jobs search -n -o "$trials" >points
EOD

# On a machine that is too slow an allocation is over before enough has begun: the next one has twice
# the time.
#
# $1 - The ensemble.
# $2 - The seconds that its allocation had.
# $3.. - Whether it was cut off where it is to be.
cut_off() {
	name=$1 limit=$2
	shift 2
	until "$@"; do
		limit=$(($limit * 2)) &&
		test $limit -lt 240 &&
		flux start sh ./allocation.sh first $name=${limit}s || return 1
	done
}

five_have_begun() {
	test -e ran && test $(wc -l <ran) -ge 5
}

test_expect_success FLUX 'two-allocations.sh: an allocation that is too short says what is left' '
	mkdir state-two-allocations state-search &&
	flux start sh ./allocation.sh first two-allocations=20s search=30s &&
	cut_off two-allocations 20 grep "of 60 jobs are left" two-allocations.first &&
	grep "the allocation ends in [1-9]*s: no more jobs are started" two-allocations.first &&
	grep "the allocation has expired, [0-9]* of 60 jobs are left" two-allocations.first &&
	grep "an instance with the statedir $PWD/state-two-allocations goes on with them" \
		two-allocations.first
'

test_expect_success FLUX 'the next one goes on with it, and completes' '
	cut_off search 30 five_have_begun &&
	tail -n 1 ran >cut &&
	touch go-on &&
	flux start sh ./allocation.sh second two-allocations=5m search=5m &&
	grep "there is time again, for [1-4]m .*s: what was left goes on" two-allocations.second &&
	grep "^two-allocations: completed" two-allocations.second
'

test_expect_success FLUX 'each job succeeded once, and none counts as timed out' '
	grep "^simulate " two-allocations.second >counts &&
	set -- $(cat counts) &&
	is 60 "$3" && is 0 "$4" && is 0 "$6" && is "$2" "$((60 + $5))"
'

test_expect_success FLUX 'a search goes on in the next allocation: the trial that was cut off runs again' '
	grep "^search: completed" search.second &&
	is 2 "$(grep -c "^$(cat cut)$" ran)" &&
	is 12 "$(sort -u ran | wc -l)" &&
	is 12 "$(grep -c complete points)" &&
	grep "^[0-9]*,$(cat cut),canceled" points
'

test_expect_success FLUX 'it has the points of a search that was not cut off, each trial told once' '
	mkdir undisturbed &&
	touch undisturbed/go-on &&
	(
		cd undisturbed &&
		"$SHARNESS_BUILD_DIRECTORY/flux-ensemble" run --member local --state-dir state \
			../search.yaml &&
		"$SHARNESS_BUILD_DIRECTORY/flux-ensemble" jobs --state-dir state search -n -o "$trials" \
			>points
	) &&
	grep complete points >found &&
	test_cmp undisturbed/points found
'

test_done
