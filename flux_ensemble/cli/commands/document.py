"""`validate`: checks a document without Flux."""

from __future__ import annotations

import click

from flux_ensemble.cli.common import check_document, read_document


@click.command
@click.argument("file")
def validate(file: str) -> None:
    """Check FILE ("-": standard input) and print every error in it.

    Works without Flux. Exits 0 if the document is valid and 2 if it is not.
    """
    text, label = read_document(file)
    # From standard input there is no file name to name the ensemble after, and a
    # document without a name is no error of the document.
    spec = check_document(text, label, None if label else "document")
    groups, rules = len(spec.groups), len(spec.rules)
    click.echo(
        f"{label or 'document'}: ok: {groups} job group{'s'[: groups != 1]}, "
        f"{rules} rule{'s'[: rules != 1]}"
    )


COMMANDS = (validate,)
