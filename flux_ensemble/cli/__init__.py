"""The command line: `flux ensemble` and `flux-ensemble`.

`main` parses, and is the one place where errors become text and exit codes. `commands` has a file
for each family of commands, `display` what they print, `session` what goes on while they follow
an ensemble. What decides anything about an ensemble does not belong here.
"""
