# Run a command again and again until it succeeds, for up to three minutes: `wait_until test -e file`.
wait_until() {
	tries=0
	until "$@"; do
		tries=$(($tries + 1))
		test $tries -lt 1800 || return 1
		sleep 0.1
	done
}
