# For the tests of examples, sourced after ensemble.sh.

# Compare the outcomes of the groups of an ensemble that has ended (success/failed/canceled/timeout).
#
# $1 - The ensemble's name.
# $2.. - GROUP=COUNTS, for each of its groups.
counts_are() {
	name=$1
	shift
	flux queue idle --timeout=30 &&
	is $# "$(flux ensemble status -no {group} "$name" | wc -l)" &&
	for expected; do
		is "${expected#*=}" "$(counts_of "$name" "${expected%%=*}")" || return 1
	done
}
