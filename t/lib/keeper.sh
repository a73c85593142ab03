# Functions for t/t310*.t, sourced after ensemble.sh.

# Shell functions for the initial programs of the instances here.
cat >functions <<-'EOF'
	# A value of what the keeper says of the service.
	kept() {
		flux module stats ensemble-keeper | flux python -c '
	import json, sys
	print(json.load(sys.stdin)[sys.argv[1]])' "$1"
	}

	# Run a command again and again until it succeeds, for up to three minutes.
	wait_until() {
		tries=0
		until "$@" >/dev/null 2>&1; do
			tries=$(($tries + 1))
			test $tries -lt 1800 || return 1
			sleep 0.1
		done
	}

	is_kept() {
		test "$(kept $1)" = "$2"
	}

	is_gone() {
		! kill -0 "$1"
	}

	# Another process than $1 answers.
	is_another() {
		new=$(kept pid) && test "$new" != None && test "$new" != "$1" && is_kept state running
	}

	as_guest() {
		FLUX_HANDLE_ROLEMASK=0x2 FLUX_HANDLE_USERID=9999 "$@"
	}

	# Kill the service, and wait until it answers again.
	kill_service() {
		old=$(kept pid) && kill -KILL "$old" && wait_until is_another "$old" && flux ensemble list
	}
EOF

# Run a script as the initial program of an instance; it may call the functions above.
#
# $@ - Options for flux start; the script is standard input.
with_flux() {
	{
		echo ". ./functions"
		cat
	} >script &&
	flux start "$@" sh ./script
}

# The keeper's file, and the Python that it is to use.
keeper=$PROJECT/flux_ensemble/modules/ensemble-keeper.py
python=python=$SHARNESS_BUILD_DIRECTORY/python

cat >idle.yaml <<-EOD
name: idle
finish: never
jobs: [{name: echo, command: echo hello}]
rules: [{trigger: start, action: {name: submit, label: echo}}]
EOD
