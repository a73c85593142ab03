"""The command line: `flux ensemble` and `flux-ensemble`.

`main` parses, and is the only place where errors become text and exit codes. `commands` has a file
for each family of commands, `display` formats their output, `session` follows ensembles for them.
Code that decides anything about an ensemble does not belong here.
"""
