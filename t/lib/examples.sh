# For the tests of examples, sourced after ensemble.sh.

# Print what an ensemble that has ended came to, each on a line: how often its rules fired
# (1,4,0), and GROUP=success/failed/canceled/timeout.
summary_of() {
	flux queue idle --timeout=300 >&2 &&
	flux ensemble status --json "$1" | "$SHARNESS_BUILD_DIRECTORY/python" -IS -c '
import json, sys
ensemble = json.load(sys.stdin)["ensembles"][0]
print(*(rule["fired"] for rule in ensemble["rules"]), sep=",")
for name, group in ensemble["groups"].items():
    outcomes = [group[key] for key in ("success", "failed", "canceled", "timeout")]
    assert group["attempts"] == sum(outcomes) >= group["finished"], group
    print(name, "/".join(map(str, outcomes)), sep="=")'
}

# Compare the outcomes of the groups of an ensemble that has ended.
#
# $1 - The ensemble's name.
# $2.. - GROUP=COUNTS, for each of its groups.
counts_are() {
	name=$1
	shift
	printf "%s\n" "$@" | sort >counts.expected &&
	summary_of "$name" | grep = | sort >counts.actual &&
	test_cmp counts.expected counts.actual
}

# Compare what an example came to with its line in examples.txt.
ends_as_listed() {
	sed -n "s/^$1  *//p" "$SHARNESS_TEST_SRCDIR/lib/examples.txt" | tr -s " " "\n" >listed &&
	test -s listed &&
	summary_of "$1" >ended &&
	test_cmp listed ended
}
