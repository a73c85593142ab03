# For the tests of examples, sourced after ensemble.sh.

# Compare the outcomes of the groups of an ensemble that has ended (success/failed/canceled/timeout).
#
# $1 - The ensemble's name.
# $2.. - GROUP=COUNTS, for each of its groups.
counts_are() {
	name=$1
	shift
	flux queue idle --timeout=30 &&
	printf "%s\n" "$@" | sort >counts.expected &&
	flux ensemble status --json "$name" | "$SHARNESS_BUILD_DIRECTORY/python" -IS -c '
import json, sys
groups = json.load(sys.stdin)["ensembles"][0]["groups"]
for name, group in groups.items():
    outcomes = [group[key] for key in ("success", "failed", "canceled", "timeout")]
    assert group["attempts"] == sum(outcomes) >= group["finished"], group
    print(name, "/".join(map(str, outcomes)), sep="=")' | sort >counts.actual &&
	test_cmp counts.expected counts.actual
}
