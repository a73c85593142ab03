#!/bin/sh
# Write state directories as this version leaves them: golden_states.sh DIRECTORY
#
# Each archive has a document and the state of its ensemble, which was killed in the midst of its
# run: VERSION-local.tar.gz of a local run, VERSION-flux.tar.gz of a Flux instance. Later versions go
# on with them (t3208-golden-states.t), so those of a release are not written again. Needs root, for
# a host name that is nobody's.
set -e
here=$(cd "$(dirname "$0")" && pwd)
to=$(cd "$1" && pwd)
bin=$here/../../.venv/bin
if test -z "$GOLDEN_ROOM"; then
	export GOLDEN_ROOM=t
	flux=$(dirname "$(command -v flux)")
	exec unshare --uts env -i GOLDEN_ROOM=t PATH="/tmp/golden/bin:$flux:/usr/bin:/bin" HOME=/ LC_ALL=C.UTF-8 \
		sh "$here/golden_states.sh" "$to"
fi
hostname golden
mkdir /tmp/golden /tmp/golden/bin
trap 'rm -rf /tmp/golden' EXIT
ln -s "$bin/flux-ensemble" /tmp/golden/bin
cd /tmp/golden
unset OLDPWD
version=$(flux-ensemble --version | cut -d' ' -f2)
cp "$here/golden.yaml" .

# Wait until jobs run that take their time, for half a minute at most.
begun() {
	for _ in $(seq 300); do
		flux-ensemble metrics golden --json "$@" 2>&1 | tr -d " \n" | grep -q "\"long\":{\"submitted\":[1-9]" && return
		sleep 0.1
	done
	return 1
}

flux-ensemble run --queue local --cores 2 --state-dir state golden.yaml >/dev/null 2>&1 &
begun --queue local --state-dir state
kill -9 $!
wait $! || :
tar -czf "$to/$version-local.tar.gz" --owner=0 --group=0 golden.yaml state
rm -rf state

mkdir state
cat >load.sh <<-EOD
$(sed -n '/^begun() {/,/^}/p' "$here/golden_states.sh")
flux ensemble load golden.yaml && begun
EOD
flux start -Sstatedir=/tmp/golden/state --conf=resource.noverify=true sh ./load.sh
tar -czf "$to/$version-flux.tar.gz" --owner=0 --group=0 golden.yaml state
