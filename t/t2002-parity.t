#!/bin/sh
test_description='An ensemble does the same on Flux, on the local queue and in the simulator'
. "$(dirname "$0")/lib/ensemble.sh"
. "$SHARNESS_TEST_SRCDIR/lib/examples.sh"
test_under_flux 4

# The closing table of a run without what was measured: group, submitted, and outcomes.
counts_in() {
	awk "/^GROUP /,/^$/" "$1" | awk "NF > 5 {print \$1, \$2, \$3, \$4, \$5, \$6}"
}

# $1 - The example's name.
# $2.. - GROUP=COUNTS, for each of its groups, unless t2000-examples.t compares them.
parity() {
	flux ensemble run --timeout 60 --record flux.jsonl "$PROJECT/examples/$1.yaml" >flux.out &&
	{ test $# = 1 || counts_are "$@"; } &&
	flux ensemble run --member local --state-dir state --record local.jsonl \
		"$PROJECT/examples/$1.yaml" >local.out &&
	flux ensemble simulate --nodes 4 --cores 2 --record simulated.jsonl \
		"$PROJECT/examples/$1.yaml" >simulated.out &&
	for member in flux local simulated; do
		"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/lib/firings.py" $member.jsonl \
			>$member.firings &&
		test -s $member.firings &&
		counts_in $member.out >$member.counts &&
		test -s $member.counts &&
		flux ensemble replay $member.jsonl || return 1
	done &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.firings simulated.firings &&
	test_cmp flux.counts local.counts &&
	test_cmp flux.counts simulated.counts
}

while read -r example counts; do
	test_expect_success "$example: the same firings and counts" "parity $example $counts"
done <<-EOD
	hello-world sleep=5/0/0/0 echo=5/0/0/0
	repetitions-and-backoff sleep=7/0/0/0 every=6/0/0/0 every-third=3/0/0/0
	terminate step=5/0/0/0
	heartbeat solve=3/0/0/0 pulse=3/0/0/0 note=1/0/0/0
	parameter-sweep
	cancel-on-condition search=1/0/3/0 report=1/0/0/0
	pipeline
	map-reduce
	more-time
	retry-with-more assemble=1/0/0/1 report=1/0/0/0
	more-nodes
	drift train=3/0/0/0 explore=16/0/0/0
	anomaly md=4/0/1/0 report=1/0/0/0
	active-loop ask=12/0/0/0 compute=6/0/0/0 train=2/0/0/0
	stragglers align=6/0/1/0 check=6/0/0/0 report=1/0/0/0
	replica-exchange md=12/0/0/0 report=1/0/0/0
EOD

# The local queue has flux-ensemble memo in place of flux job memo.
test_expect_success 'job-memo: the same firings and counts' '
	mkdir -p bin &&
	cat >bin/flux <<-EOD &&
	#!/bin/sh
	shift 3
	exec "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" memo "\$@"
	EOD
	chmod +x bin/flux &&
	example=$PROJECT/examples/job-memo.yaml &&
	flux ensemble run --record flux.jsonl "$example" &&
	PATH=$PWD/bin:$PATH "$SHARNESS_BUILD_DIRECTORY/flux-ensemble" run --member local \
		--state-dir state --record local.jsonl "$example" &&
	flux ensemble simulate --nodes 4 --cores 2 --record simulated.jsonl "$example" &&
	for member in flux local simulated; do
		"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/lib/firings.py" $member.jsonl \
			>$member.firings || return 1
	done &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.firings simulated.firings
'

# $1 - The name of an example with custom functions.
# $2.. - GROUP=COUNTS, for each of its groups.
custom_parity() {
	example=$PROJECT/examples/$1.yaml &&
	flux ensemble run --timeout 60 --record flux.jsonl "$example" &&
	counts_are "$@" &&
	flux ensemble run --member local --state-dir state --record local.jsonl "$example" &&
	for member in flux local; do
		"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/lib/firings.py" $member.jsonl \
			>$member.firings || return 1
	done &&
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
	test_expect_code 1 flux ensemble run --member local --state-dir state --cores 4 \
		--record local.jsonl "$example" >local.out 2>local.err &&
	for member in flux local; do
		grep -h "3 cases have failed, the last one with exit code 3" \
			$member.out $member.err &&
		counts_in $member.out >$member.counts &&
		test -s $member.counts &&
		"$SHARNESS_BUILD_DIRECTORY/python" "$PROJECT/t/lib/firings.py" $member.jsonl \
			>$member.firings || return 1
	done &&
	test_cmp flux.firings local.firings &&
	test_cmp flux.counts local.counts
'

test_done
