#!/bin/sh
test_description='Examples end with the expected job counts, and do the same on the local queue and in the simulator'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 4

# The closing table of a run without what was measured: group, submitted, and outcomes.
counts_in() {
	awk "/^GROUP /,/^$/" "$1" | awk "NF > 5 {print \$1, \$2, \$3, \$4, \$5, \$6}"
}

# Run an example on Flux, and compare the outcomes of its groups (success/failed/canceled/timeout).
#
# $1 - The example's name.
# $2.. - GROUP=COUNTS, for each of its groups.
on_flux() {
	flux ensemble run --timeout 60 --record flux.jsonl "$PROJECT/examples/$1.yaml" >flux.out &&
	counts_are "$@"
}

# The firings in recordings, one file for each.
#
# $@ - The names of the members, as those of the files.
firings() {
	for member; do
		"$SHARNESS_BUILD_DIRECTORY/python" -IS "$PROJECT/t/lib/firings.py" $member.jsonl \
			>$member.firings &&
		test -s $member.firings || return 1
	done
}

# Run an example elsewhere, and compare that with what has been on Flux.
#
# $1 - The example's name.
elsewhere() {
	flux ensemble run --member local --state-dir state --record local.jsonl \
		"$PROJECT/examples/$1.yaml" >local.out &&
	flux ensemble simulate --nodes 4 --cores 2 --record simulated.jsonl \
		"$PROJECT/examples/$1.yaml" >simulated.out &&
	firings flux local simulated &&
	for member in flux local simulated; do
		counts_in $member.out >$member.counts &&
		test -s $member.counts &&
		flux ensemble replay $member.jsonl || return 1
	done &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.firings simulated.firings &&
	test_cmp flux.counts local.counts &&
	test_cmp flux.counts simulated.counts
}

same_elsewhere() {
	test_expect_success "$1: the same firings and counts on the others" "elsewhere $1"
}

while read -r example counts; do
	test_expect_success "$example" "on_flux $example $counts"
	same_elsewhere $example
done <<-EOD
	hello-world sleep=5/0/0/0 echo=5/0/0/0
	repetitions-and-backoff sleep=7/0/0/0 every=6/0/0/0 every-third=3/0/0/0
	terminate step=5/0/0/0
	heartbeat solve=3/0/0/0 pulse=3/0/0/0 note=1/0/0/0
	cancel-on-condition search=1/0/3/0 report=1/0/0/0
	retry-with-more assemble=1/0/0/1 report=1/0/0/0
	drift train=3/0/0/0 explore=16/0/0/0
	anomaly md=4/0/1/0 report=1/0/0/0
	active-loop ask=12/0/0/0 compute=6/0/0/0 train=2/0/0/0
	stragglers align=6/0/1/0 check=6/0/0/0 report=1/0/0/0
	replica-exchange md=12/0/0/0 report=1/0/0/0
	longest-first md=12/0/0/0 report=1/0/0/0
EOD

test_expect_success 'parameter-sweep' '
	on_flux parameter-sweep simulate=8/0/0/0 pairs=3/0/0/0 sample=4/0/0/0
'

test_expect_success 'parameter-sweep: each job has its own combination' '
	for id in $(flux jobs -a --no-header --format={id} --name=simulate); do
		flux job attach $id || return 1
	done | sort >actual &&
	for temperature in 280 300 305 320; do
		for seed in 0 1; do
			echo "simulate at $temperature K with seed $seed"
		done
	done >expected &&
	test_cmp expected actual
'

same_elsewhere parameter-sweep

test_expect_success 'pipeline' '
	on_flux pipeline simulate=3/0/0/0 analyse=3/0/0/0 report=1/0/0/0
'

test_expect_success 'pipeline: each analysis has the parameter of its own simulation' '
	for id in $(flux jobs -a --no-header --format={id} --name=analyse); do
		flux job attach $id || return 1
	done | sort >actual &&
	printf "analyse %s of simulation %s\n" 1 0 2 1 3 2 >expected &&
	test_cmp expected actual
'

same_elsewhere pipeline

test_expect_success 'map-reduce' '
	on_flux map-reduce map=12/0/0/0 reduce=3/0/0/0
'

test_expect_success 'map-reduce: each mean is that of the seeds of its own temperature' '
	for t in 280 300 320; do
		is $(($t + 1)).5 "$(cat map-reduce/$t.mean)" || return 1
	done
'

same_elsewhere map-reduce

test_expect_success 'more-time' '
	on_flux more-time relax=1/0/0/1 tell=1/0/0/0 complain=0/0/0/0
'

test_expect_success 'more-time: the second limit is twice the first' '
	flux jobs -a --no-header --format={duration} --name=relax | sort >actual &&
	printf "%s\n" 4.0 8.0 >expected &&
	test_cmp expected actual
'

same_elsewhere more-time

test_expect_success 'more-nodes' '
	on_flux more-nodes iterate=3/0/0/0
'

test_expect_success 'more-nodes: the slow job is followed by one on two nodes' '
	flux jobs -a --no-header --format={nnodes} --name=iterate | sort >actual &&
	printf "%s\n" 1 1 2 >expected &&
	test_cmp expected actual
'

same_elsewhere more-nodes

test_expect_success 'job-memo' '
	on_flux job-memo simulate=3/0/0/0 refine=1/0/0/0 analyse=1/0/0/0
'

# The local queue has flux-ensemble memo in place of flux job memo.
test_expect_success 'job-memo: the same firings on the others' '
	mkdir -p bin &&
	cat >bin/flux <<-EOD &&
	#!/bin/sh
	shift 3
	exec "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" memo "\$@"
	EOD
	chmod +x bin/flux &&
	example=$PROJECT/examples/job-memo.yaml &&
	PATH=$PWD/bin:$PATH "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" run --member local \
		--state-dir state --record local.jsonl "$example" &&
	flux ensemble simulate --nodes 4 --cores 2 --record simulated.jsonl "$example" &&
	firings flux local simulated &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.firings simulated.firings
'

# $1 - The name of an example with custom functions.
# $2.. - GROUP=COUNTS, for each of its groups.
custom_parity() {
	on_flux "$@" &&
	flux ensemble run --member local --state-dir state --record local.jsonl \
		"$PROJECT/examples/$1.yaml" &&
	firings flux local &&
	test_cmp flux.firings local.firings
}

while read -r example counts; do
	test_expect_success "$example: the same firings on Flux and on the local queue" \
		"custom_parity $example $counts"
done <<-EOD
	custom-action echo=3/0/0/0 report=1/0/0/0
	counter step=6/0/0/0 report=1/0/0/0
EOD

test_expect_success 'fail-fast: the same end, firings and counts on Flux and on the local queue' '
	example=$PROJECT/examples/fail-fast.yaml &&
	test_expect_code 1 flux ensemble run --record flux.jsonl "$example" >flux.out 2>flux.err &&
	counts_are fail-fast case=0/3/2/0 &&
	test_expect_code 1 flux ensemble run --member local --state-dir state --cores 4 \
		--record local.jsonl "$example" >local.out 2>local.err &&
	for member in flux local; do
		grep -h "3 cases have failed, the last one with exit code 3" \
			$member.out $member.err &&
		counts_in $member.out >$member.counts &&
		test -s $member.counts || return 1
	done &&
	firings flux local &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.counts local.counts
'

test_done
