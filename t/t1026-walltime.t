#!/bin/sh
test_description='An allocation ends, and the next one goes on with what was left'
. "$(dirname "$0")/lib/ensemble.sh"

# Submit ensembles to the enclosing instance, each in an allocation of its own, and wait until they
# are over. On a machine that is slow the first ones are prolonged until enough has begun.
#
# $1 - Where their output goes.
# $2.. - NAME=LIMIT of each: the example two-allocations, or the search below.
cat >allocation.sh <<-EOD
	has_begun() {
		case \$1 in
		two-allocations) grep -q progress "$PWD/two-allocations.first" ;;
		search) test -e "$PWD/ran" && test \$(wc -l <"$PWD/ran") -ge 5 ;;
		esac
	}
	see_through() {
		until has_begun \$1 || flux job wait-event -t 5 \$2 clean; do
			flux update \$2 duration=+5s
		done
		flux job wait-event -t 500 \$2 clean
	}

	where=\$1
	shift
	for one; do
		name=\${one%=*}
		directory="$PWD"
		test \$name = search || directory="$PROJECT/examples"
		id=\$(flux batch -n1 -t \${one#*=} \
			--broker-opts=-Sstatedir="$PWD/state-\$name" --output="$PWD/\$name.\$where" \
			--cwd="\$directory" "\$directory/\$name.sh")
		see_through \$name \$id >/dev/null &
	done
	wait
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
	        flux-ensemble memo loss={x}
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
	flux ensemble jobs search --interrupted -n -o "$trials" >points
EOD

test_expect_success FLUX 'two-allocations.sh: an allocation that is too short says what is left' '
	mkdir state-two-allocations state-search &&
	flux start sh ./allocation.sh first two-allocations=20s search=20s &&
	grep "the allocation ends in [1-9]*s: no more jobs are started" two-allocations.first &&
	grep -E "the allocation (is about to expire|has expired), [0-9]* of 60 jobs are left" two-allocations.first &&
	grep "an instance with the statedir $PWD/state-two-allocations goes on with them" \
		two-allocations.first
'

test_expect_success FLUX 'the next one goes on with it, and completes' '
	is 5 "$(wc -l <ran)" &&
	tail -n 1 ran >cut &&
	touch go-on &&
	flux start sh ./allocation.sh second two-allocations=5m search=5m &&
	grep "there is time again, for [1-4]m .*s: what was left goes on" two-allocations.second &&
	grep "^two-allocations: completed" two-allocations.second
'

test_expect_success FLUX 'each job succeeded once, and none counts as timed out' '
	grep "^simulate " two-allocations.second >counts &&
	set -- $(cat counts) &&
	is 60 "$3" && is 0 "$4" && is 0 "$5" && is 0 "$6" && is "$2" "$((60 + $7))"
'

test_expect_success FLUX 'a search goes on in the next allocation: the trial that was cut off runs again' '
	grep "^search: completed" search.second &&
	is 2 "$(grep -c "^$(cat cut)$" ran)" &&
	is 12 "$(sort -u ran | wc -l)" &&
	is 12 "$(grep -c complete points)" &&
	grep "^[0-9]*,$(cat cut),interrupted" points
'

cat >steps.yaml <<-EOD
	jobs:
	  - name: step
	    command: "sh -c 'until test {i} -eq 0 -o -e next; do sleep 0.1; done; echo {i} >>steps'"
	    params: {i: {range: [0, 12]}}
	rules:
	  - {trigger: start, action: {name: submit, label: step}}
EOD

# As where a batch system ends the instance, of which Flux knows no end.
test_expect_success FLUX 'timeout --signal=ALRM is the end of an allocation that Flux does not know' '
	mkdir state-alarm &&
	test_must_fail flux start -Sstatedir="$PWD/state-alarm" \
		timeout --signal=ALRM 15 flux ensemble run --resume steps.yaml >alarm 2>&1 &&
	grep "11 of 12 jobs are left: an instance with the statedir $PWD/state-alarm" alarm &&
	touch next &&
	flux start -Sstatedir="$PWD/state-alarm" \
		timeout --signal=ALRM 500 flux ensemble run --resume steps.yaml >resumed 2>&1 &&
	grep "^steps: completed after .* can fire any more$" resumed &&
	is 12 "$(wc -l <steps)"
'

test_expect_success FLUX 'it has the points of a search that was not cut off, each trial told once' '
	mkdir undisturbed &&
	touch undisturbed/go-on &&
	(
		cd undisturbed &&
		flux-ensemble run --queue local --state-dir state ../search.yaml &&
		flux-ensemble jobs --state-dir state search -n -o "$trials" >points
	) &&
	grep complete points >found &&
	test_cmp undisturbed/points found
'

test_done
