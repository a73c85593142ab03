"""`doctor`: check a Flux instance, or the sites of members, and print remedies for the findings."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

import click

from flux_ensemble.bindings import BindingsError
from flux_ensemble.cli.common import FAILED, OK, check_document, read_document
from flux_ensemble.cli.display.colours import ANSI, ANSI_OFF, use_colour
from flux_ensemble.cli.display.formats import print_json
from flux_ensemble.cli.session import completion
from flux_ensemble.client import Client, EnsembleError
from flux_ensemble.deploy.doctor import examine
from flux_ensemble.finding import Finding
from flux_ensemble.provider_list import PROVIDERS, has_part, part

#: The style of a state.
STYLES = {"ok": "good", "warning": "warn", "problem": "bad"}

#: Columns of the check's name and of its state, with a blank.
INDENT = 12 + 9


@click.command
@click.argument("file", required=False, shell_complete=completion.files)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one line of JSON.")
def doctor(file: str | None, as_json: bool) -> int:
    """Check whether this Flux instance is fit for ensembles that survive crashes.

    With FILE, a document, check whether the sites of its members would take them; the instance only
    if members are started there, or there are none.

    Prints a line for each thing that was looked at, and below it what to do about it where
    something is not as it should be. Exits 1 if there is a problem; warnings are none.
    """
    findings = _examine() if file is None else _examine_for(file)
    if as_json:
        print_json({"checks": [finding.to_json() for finding in findings]})
    else:
        _print(findings)
    return FAILED if any(finding.state == "problem" for finding in findings) else OK


def _examine() -> list[Finding]:
    try:
        handle = Client().handle
    except BindingsError as exc:
        return [Finding("flux", "problem", "Flux cannot be used from Python", str(exc))]
    except EnsembleError as exc:
        return [Finding("instance", "problem", "no Flux instance can be reached", str(exc))]
    return examine(handle)


def _examine_for(file: str) -> list[Finding]:
    """Examine what a document needs."""
    text, path = read_document(file)
    pools = check_document(text, path, None if path else "document").members
    sites = [pool for pool in pools if has_part(pool.provider, "checks")]
    at_home = not pools or any(pool.provider == PROVIDERS[0] for pool in pools)
    findings = _examine() if at_home else []
    return [*findings, *(part(pool.provider, "checks").check(pool) for pool in sites)]


def _print(findings: Sequence[Finding]) -> None:
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    colour = use_colour()
    for finding in findings:
        state = f"{finding.state:<9}"
        if colour:
            state = f"{ANSI[STYLES[finding.state]]}{state}{ANSI_OFF}"
        lines = textwrap.wrap(finding.text, width - INDENT, break_on_hyphens=False)
        click.echo(f"{finding.check:<12}{state}{lines[0]}")
        for line in lines[1:]:
            click.echo(" " * INDENT + line)
        advice = textwrap.wrap(finding.advice, width - INDENT - 3, break_on_hyphens=False)
        for number, line in enumerate(advice):
            click.echo(" " * INDENT + ("   " if number else "-> ") + line)
    click.echo()
    click.echo(_summary(findings))


def _summary(findings: Sequence[Finding]) -> str:
    counts = [
        f"{count} {what}{'s' if count > 1 else ''}"
        for what in ("problem", "warning")
        if (count := sum(finding.state == what for finding in findings))
    ]
    return " and ".join(counts) if counts else "all is well"


COMMANDS = (doctor,)
