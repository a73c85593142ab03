# Fish completion of `flux-ensemble` and of `flux ensemble`: put this file into
# ~/.config/fish/completions, and a line `source FILE` into its flux.fish for the latter.

# Ask flux-ensemble for the completions of the current word.
function __flux_ensemble_words
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    if test "$words[1]" = flux
        set -e words[1]
    end
    set -e words[1]
    for line in (env COMP_WORDS="flux-ensemble $words $current" COMP_CWORD="$current" \
            _FLUX_ENSEMBLE_COMPLETE=fish_complete flux-ensemble 2>/dev/null)
        set -l parts (string split -m 1 , -- $line)
        switch $parts[1]
            case plain
                echo $parts[2]
            case dir
                __fish_complete_directories $current
            case file
                __fish_complete_path $current
        end
    end
end

function __flux_ensemble_is_meant
    set -l words (commandline -opc)
    test "$words[2]" = ensemble
end

complete -c flux-ensemble -f -a '(__flux_ensemble_words)'
complete -c flux -n __flux_ensemble_is_meant -f -a '(__flux_ensemble_words)'
