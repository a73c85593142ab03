#!/bin/sh
test_description='state directories that released versions left are gone on with'
. "$(dirname "$0")/lib/ensemble.sh"
test_under_flux 1

STATES=$SHARNESS_TEST_SRCDIR/traces/states

# In status.json and log each job counts once, and each rule has fired once.
is_whole() {
	for value in state groups.first.success groups.long.success groups.last.success; do
		json ensembles.0.$value <status.json || return 1
	done | xargs >found &&
	is "completed 6 8 1" "$(cat found)" &&
	is 3 "$(grep -c " fire  " log)"
}

# Do something for each directory of a kind; $1 - the kind, $2 - a function, which is called in it.
each() {
	for archive in "$STATES"/*-"$1".tar.gz; do
		version=$(basename "$archive" "-$1.tar.gz") &&
		mkdir "$1-$version" &&
		tar -xzf "$archive" --no-same-owner -C "$1-$version" &&
		(cd "$1-$version" && "$2" && is_whole) || return 1
	done
}

local_run() {
	flux-ensemble run --resume --queue local --cores 2 --state-dir state golden.yaml &&
	flux-ensemble status golden --json --queue local --state-dir state >status.json &&
	flux-ensemble log golden --queue local --state-dir state >log
}

instance() {
	cat >go-on.sh <<-EOD &&
	flux ensemble run --resume golden.yaml &&
	flux ensemble status golden --json >status.json &&
	flux ensemble log golden >log
	EOD
	flux start -Sstatedir="$PWD/state" --conf=resource.noverify=true sh ./go-on.sh
}

test_expect_success FLUX 'a local run that was killed goes on' '
	each local local_run
'

test_expect_success FLUX 'the ensemble of an instance that ended goes on' '
	each flux instance
'

test_done
