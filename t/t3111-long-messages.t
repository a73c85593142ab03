#!/bin/sh
test_description='Messages that are longer than what the socket of a module holds'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

# Run a script where Flux sleeps on the rest of each such message. Elsewhere it does by chance, once
# in thousands (flux_ensemble/queues/flux/relay.py). The script is standard input.
where_looks_are_late() {
	# LD_PRELOAD takes no path with blanks, as that of this directory.
	late_look=$(mktemp) &&
	cc -shared -fPIC -o "$late_look" "$SHARNESS_TEST_SRCDIR/lib/late_look.c" -ldl &&
	"$SHARNESS_BUILD_DIRECTORY/python" -m flux_ensemble.bindings >module.json &&
	{
		cat <<-EOD &&
		unset LD_PRELOAD
		load() {
			flux module \$1 $(json path <module.json) $(json args <module.json | tr -d '[],"')
		}
		EOD
		cat
	} >script &&
	timeout --kill-after=20 400 flux start --test-size=1 \
		--wrap="env,LD_PRELOAD=$late_look" sh -e ./script
	status=$?
	rm -f "$late_look"
	return $status
}

cat >idle.yaml <<-EOD
	finish: never
	jobs: [{name: a, command: "true"}]
EOD

test_expect_success CC 'a long request is answered at once' '
	cat >ask.py <<-EOD &&
	from flux_ensemble.bindings import require_flux

	require_flux()
	import flux

	handle = flux.Flux()
	for number in range(4):
	    # What a service without ensembles sends for another reason, once a minute, ends a sleep
	    # too. What it sends against sleeps, each second, does so on the slowest machine.
	    future = handle.rpc("ensemble.status", {"name": "x" * 600_000})
	    try:
	        future.wait_for(45).get()
	    except OSError as error:
	        assert "expected at most" in error.strerror, (number, error)
	EOD
	where_looks_are_late <<-EOD
	load load
	"$SHARNESS_BUILD_DIRECTORY/python" ask.py
	EOD
'

test_expect_success CC 'a long document is loaded, shown, and there after a reload of the module' '
	{ cat idle.yaml && printf "# %0600000d\n" 1; } >long.yaml &&
	where_looks_are_late <<-EOD &&
	load load
	flux ensemble load long.yaml
	load reload
	flux ensemble submit long a
	flux ensemble status long --json >status.json
	EOD
	grep "\"submitted\": 1" status.json
'

test_done
