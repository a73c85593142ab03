"""The commands: a file for each family, which lists its commands in `COMMANDS`.

`cli.table` names the files; each is imported only when one of its commands runs.
"""
