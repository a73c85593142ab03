# Bash completion of `flux-ensemble` and of `flux ensemble`. Source it from ~/.bashrc, after
# Flux's own completion if that is sourced there too.

# Ask flux-ensemble for the completions of the words after the command's name; where it has
# none, files are completed.
#
# $1 - Which of the words is being completed; 1 is the first after the name.
# $2.. - The words.
_flux_ensemble_words() {
	local cword=$1 type value
	shift
	while IFS=, read -r type value; do
		test "$type" = plain && COMPREPLY+=("$value")
	done < <(COMP_WORDS="flux-ensemble $*" COMP_CWORD=$cword \
		_FLUX_ENSEMBLE_COMPLETE=bash_complete flux-ensemble 2>/dev/null)
	test "${#COMPREPLY[@]}" -gt 0 || compopt -o default
}

_flux_ensemble() {
	COMPREPLY=()
	_flux_ensemble_words "$COMP_CWORD" "${COMP_WORDS[@]:1}"
}

# `flux ensemble ...` is ours; anything else is Flux's own.
_flux_with_ensemble() {
	if test "${COMP_WORDS[1]}" = ensemble && test "$COMP_CWORD" -ge 2; then
		COMPREPLY=()
		_flux_ensemble_words $((COMP_CWORD - 1)) "${COMP_WORDS[@]:2}"
	elif declare -F _flux_core >/dev/null; then
		_flux_core "$@"
	else
		compopt -o default
	fi
}

complete -o nosort -F _flux_ensemble flux-ensemble
complete -F _flux_with_ensemble flux
