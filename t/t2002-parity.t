#!/bin/sh
test_description='Examples do on Flux what they do on the local queue and in the simulator'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 4

# Run an example, hold it against its line in lib/examples.txt, as t/python/parity does on the other
# queues, and replay the recording of the run.
#
# $1 - The example's name.
# $2 - The exit code; 0 without it.
on_flux() {
	test_expect_code ${2:-0} flux ensemble run --timeout 600 --record flux.jsonl \
		"$PROJECT/examples/$1.yaml" >flux.out 2>&1 &&
	ends_as_listed "$1" &&
	flux ensemble replay flux.jsonl
}

while read -r example; do
	test_expect_success "$example" "on_flux $example"
done <<-EOD
	hello-world
	repetitions-and-backoff
	terminate
	heartbeat
	cancel-on-condition
	retry-with-more
	drift
	anomaly
	active-loop
	stragglers
	population
	replica-exchange
	longest-first
	custom-action
	join
	smaller-step
	directories
	sample-sheet
EOD

# Only workers know what their tasks used.
test_expect_success 'resources, as tasks' '
	flux ensemble run --timeout 600 --tasks "$PROJECT/examples/resources.yaml" &&
	ends_as_listed resources &&
	is 6 "$(flux ensemble jobs resources -n --filter "max_rss > 20" -o "{id}" | wc -l)"
'

# Its results and its failures are those of commands, which the simulator does not run.
test_expect_success 'sweep: the best throw, and why three of them failed' '
	flux ensemble run --timeout 600 --export best:best.csv "$PROJECT/examples/sweep.yaml" &&
	grep "farthest,throw-range,91,.*,45,30" best.csv &&
	flux ensemble failures sweep >failures &&
	grep "params.angle = 90: 3 of 3 jobs failed so" failures &&
	grep "at 90 degrees the ball falls on your head" failures
'

test_expect_success 'parameter-sweep' '
	on_flux parameter-sweep
'

test_expect_success 'parameter-sweep: each job has its own combination' '
	for id in $(flux jobs -a --no-header --format={id} --name=simulate); do
		flux job attach -r $id || return 1
	done | sort >actual &&
	for temperature in 280 300 305 320; do
		for seed in 0 1; do
			echo "simulate at $temperature K with seed $seed"
		done
	done >expected &&
	test_cmp expected actual
'

test_expect_success 'pipeline' '
	on_flux pipeline
'

test_expect_success 'pipeline: each analysis has the parameter of its own simulation' '
	for id in $(flux jobs -a --no-header --format={id} --name=analyse); do
		flux job attach -r $id || return 1
	done | sort >actual &&
	printf "analyse %s of simulation %s\n" 1 0 2 1 3 2 >expected &&
	test_cmp expected actual
'

test_expect_success 'map-reduce' '
	on_flux map-reduce
'

test_expect_success 'map-reduce: each mean is that of the seeds of its own temperature' '
	for t in 280 300 320; do
		is $(($t + 1)).5 "$(cat map-reduce/$t.mean)" || return 1
	done
'

test_expect_success 'more-time' '
	on_flux more-time
'

test_expect_success 'more-time: the second limit is twice the first' '
	flux jobs -a --no-header --format={duration} --name=relax | sort >actual &&
	printf "%s\n" 4.0 8.0 >expected &&
	test_cmp expected actual
'

test_expect_success 'more-nodes' '
	on_flux more-nodes
'

test_expect_success 'more-nodes: the slow job is followed by one on two nodes' '
	flux jobs -a --no-header --format={nnodes} --name=iterate | sort >actual &&
	printf "%s\n" 1 1 2 >expected &&
	test_cmp expected actual
'

test_expect_success 'job-memo' '
	on_flux job-memo
'

test_expect_success 'fail-fast: it fails, and says why' '
	on_flux fail-fast 1 &&
	grep "3 cases have failed, the last one with exit code 3" flux.out
'

test_done
