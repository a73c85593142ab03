# For t/t41*.t, sourced after ensemble.sh: an instance of three configured hosts, of which one
# is up. Its sockets are in a directory of their own, as the paths of sockets have to be short.

# Run a command as the initial program of such an instance. Standard input is appended to the
# configuration.
#
# $1 - The hosts, as in [bootstrap].
# $2.. - The command.
flux_start_elastic() {
	hosts=$1
	shift
	sockets=$(mktemp -d) &&
	flux keygen "$sockets/cert" &&
	cat >"$sockets/elastic.toml" - <<-EOD &&
	[bootstrap]
	curve_cert = "$sockets/cert"
	default_bind = "ipc://$sockets/%h"
	default_connect = "ipc://$sockets/%h"
	hosts = [$hosts]
	[resource]
	noverify = true
	[[resource.config]]
	hosts = "fake[0-2]"
	cores = "0-1"
	EOD
	cat >>"$sockets/elastic.toml" &&
	flux start --test-size=3 --test-hosts=fake[0-2] --test-start-mode=leader \
		--test-exit-mode=leader --test-exit-timeout=0 -Sbroker.quorum=1 \
		--config-path="$sockets/elastic.toml" -Stbon.topo=custom "$@"
	status=$?
	rm -rf "$sockets"
	return $status
}

flat='{host = "fake[0-2]"}'
chain='{host = "fake0"}, {host = "fake1", parent = "fake0"}, {host = "fake2", parent = "fake1"}'

# Run the rest of the file as the initial program of an instance that can start its brokers.
#
# $1 - More lines for the table [ensemble].
test_under_elastic_flux() {
	if ! command -v flux >/dev/null; then
		flux_is_missing=t
		return
	fi
	test -z "$TEST_UNDER_FLUX_ACTIVE" || return 0
	cd "$SHARNESS_TEST_DIRECTORY" && rm -rf "$SHARNESS_TRASH_DIRECTORY"
	flux_start_elastic "$flat" env TEST_UNDER_FLUX_ACTIVE=t \
		sh "$SHARNESS_TEST_SRCDIR/$(basename "$SHARNESS_TEST_FILE")" $(options_given) <<-EOD
	[ensemble]
	scaler = "instance"
	start-broker = "flux python $SHARNESS_TEST_SRCDIR/lib/start_broker.py {rank}"
	$1
	EOD
	status=$?
	# Sharness would take this for a file that ended before its test_done.
	trap - EXIT
	exit $status
}
