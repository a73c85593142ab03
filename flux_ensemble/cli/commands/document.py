"""`validate`: checks a document without Flux."""

from __future__ import annotations

import click

from flux_ensemble.cli.common import FAILED, OK, check_document, read_document
from flux_ensemble.texts import printable


@click.command
@click.argument("file")
@click.option("--strict", is_flag=True, help="Exit 1 if there are warnings.")
def validate(file: str, strict: bool) -> int:
    """Check FILE ("-": standard input) and print every error in it, or else warnings.

    Works without Flux. Exits 0 if the document is valid and 2 if it is not.
    """
    from flux_ensemble.document.lint import Warnings

    found = Warnings()
    text, label = read_document(file)
    # From standard input there is no file name to name the ensemble after, and a
    # document without a name is no error of the document.
    spec = check_document(text, label, None if label else "document", found)
    for sentence in found.notes:
        click.echo(f"note: {printable(sentence)}", err=True)
    groups, rules = len(spec.groups), len(spec.rules)
    click.echo(
        f"{label or 'document'}: ok: {groups} job group{'s'[: groups != 1]}, "
        f"{rules} rule{'s'[: rules != 1]}"
    )
    return FAILED if strict and found.warnings else OK


COMMANDS = (validate,)
