"""`use`: what packaged algorithms make takes its place; what is wrong is told where it stands."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from algorithm_packages import write_package

from flux_ensemble.algorithms import packages
from flux_ensemble.algorithms.builtin import SHIPPED, shipped
from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.model import Spec

TEXT = """\
name: study
jobs:
  - name: relax
    command: [relax, 010]
    duration: 30m
rules:
  - trigger: start
    action: {name: submit, label: relax}
use:
  - algorithm: retry-with-more
    group: relax
    duration: {factor: 2, most: 4h}
"""


def problems(text: str, **how: Any) -> list[str]:
    with pytest.raises(DocumentError) as raised:
        load_text(text, file="study.yaml", **how)
    return str(raised.value).splitlines()


def using(**use: Any) -> str:
    """A document with a group `relax`, and one `use`."""
    document = yaml.safe_load(TEXT)
    document["use"] = [use]
    return json.dumps(document)


def test_what_is_made_takes_the_place_of_use() -> None:
    spec = load_text(TEXT)
    assert spec.groups["relax"].sets[0].retries.times == 3
    assert spec.expansion is not None
    assert "use" not in spec.expansion
    assert spec.expansion["jobs"][0]["retries"] == {
        "times": 3,
        "on": "timeout",
        "with": {"duration": "{min(job.duration * 2, 14400)}"},
    }


def test_the_expansion_is_a_document_that_is_read_as_the_same() -> None:
    spec = load_text(TEXT)
    assert spec.expansion is not None
    again = load_mapping(json.loads(json.dumps(spec.expansion)), packages=False)
    assert again.expansion is None
    assert (again.groups, again.rules) == (spec.groups, spec.rules)
    # A number that is taken as it is written.
    assert again.groups["relax"].sets[0].command == ("relax", "010")


def test_a_document_without_use_has_no_expansion() -> None:
    assert load_text(TEXT.partition("use:")[0]).expansion is None


def test_an_empty_use_is_an_expansion_too() -> None:
    spec = load_text(f"{TEXT.partition('use:')[0]}use: []")
    assert spec.expansion is not None
    assert "use" not in spec.expansion


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("retry-with-more", "retry-wiht-more"),
            "study.yaml:10: use[0].algorithm: no algorithm named 'retry-wiht-more' "
            "(did you mean 'retry-with-more'? algorithms: ",
        ),
        (
            ("group: relax", "group: relx"),
            "study.yaml:11: use[0].group: no job group named 'relx' "
            "(did you mean 'relax'? groups: relax)",
        ),
        (
            ("    group: relax\n", ""),
            "study.yaml:10: use[0]: the key 'group' is missing",
        ),
        (
            ("duration: {", "durations: {"),
            "study.yaml:12: use[0].durations: unknown key 'durations' (did you mean 'duration'? ",
        ),
        (
            ("factor: 2", "factor: 1"),
            "study.yaml:12: use[0].duration.factor: expected a number > 1, not 1",
        ),
        (
            ("most: 4h", "most: long"),
            "study.yaml:12: use[0].duration.most: expected a duration (",
        ),
        (
            ("most: 4h", "most: 10m"),
            "study.yaml:12: use[0].duration: expected 'most' above what group 'relax' has, "
            "1800 seconds, not 600",
        ),
        (
            ("    duration: 30m\n", ""),
            "study.yaml:11: use[0].duration: group 'relax' has no 'duration', ",
        ),
        (
            ("010]\n", "010]\n    retries: 1\n"),
            "study.yaml:11: use[0]: it gives group 'relax' 'retries', and that has 'retries' "
            "already: take one of them out",
        ),
        (
            ("most: 4h}", "most: 4h}\n    on: finished"),
            "study.yaml:10: use[0]: what it makes, group 'relax': retries: on: ",
        ),
        (("- algorithm: retry-with-more", "- algorithm: 5"), "study.yaml:10: use[0].algorithm: "),
        (("use:\n", "use: all\nwith:\n"), "study.yaml:9: use: expected a list such as "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_line_and_remedy(change: tuple[str, str], expected: str) -> None:
    assert problems(TEXT.replace(*change))[0].startswith(expected)


def test_a_form_that_is_wrong_elsewhere_is_told_before_anything_is_made() -> None:
    text = TEXT.replace("trigger: start", "trigger: begin").replace("group: relax", "group: relx")
    (told,) = problems(text)
    assert told.startswith("study.yaml:7: rules[0].trigger: ")


def test_two_entries_need_two_ids() -> None:
    twice = TEXT + TEXT.partition("use:\n")[2]
    assert problems(twice) == [
        "study.yaml:13: use[1].algorithm: use[0] has the id 'retry-with-more' too: give one of "
        "them another 'id'"
    ]


def test_an_entry_sees_what_those_before_it_have_made(lab: Path) -> None:
    uses = [
        {"algorithm": "lab-group", "id": "more"},
        {"algorithm": "retry-with-more", "group": "more-jobs", "nodes": 2},
    ]
    document = {"name": "study", "use": uses}
    assert load_mapping(document).groups["more-jobs"].sets[0].retries.times == 3
    with pytest.raises(DocumentError, match=r"use\[0\].group: no job group named 'more-jobs'"):
        load_mapping({"name": "study", "use": uses[::-1]})


def test_there_are_at_most_a_hundred_entries() -> None:
    uses = [{"algorithm": "retry-with-more", "id": str(number)} for number in range(101)]
    with pytest.raises(DocumentError, match="use: expected at most 100 entries, not 101"):
        load_mapping({"name": "study", "use": uses})


# -- algorithms of other packages -------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with algorithms is installed."""
    directory = tmp_path / "installed"
    directory.mkdir()
    write_package(directory)
    monkeypatch.syspath_prepend(directory)
    path = os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    return directory


def loaded(use: Mapping[str, Any]) -> Spec:
    return load_text(using(**use))


def test_an_algorithm_of_another_package_is_found_by_its_entry_point(lab: Path) -> None:
    spec = loaded({"algorithm": "lab-again", "id": "first", "group": "relax"})
    assert [rule.id for rule in spec.rules] == ["rule-0", "first-start"]


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "raised KeyError: 'nothing' ("),
        ("leaves", "ended its process with status 7"),
        ("varies", "made two different things of the same arguments and document"),
        ("nothing", "made null instead of a mapping"),
        ("unplain", "made no data that JSON can hold: "),
        ("unknown", "made 'schedule' (only: jobs, rules, search, metrics, custom, groups)"),
        ("shapeless", "made 'rules' of 'many' instead of a list of mappings"),
        ("unbounded", "has arguments that are no JSON Schema: "),
        ("function", "is no flux_ensemble.algorithms.Algorithm, but of type 'function': "),
        ("gone", "raised ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_the_failure_of_a_package_is_told_with_its_name(name: str, said: str) -> None:
    (told,) = problems(using(algorithm=f"lab-{name}"))
    begin = f"study.yaml:1: use[0]: the algorithm 'lab-{name}' of the package 'lab-tools' "
    assert told.startswith(begin + said)


@pytest.mark.usefixtures("lab")
def test_a_slow_package_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PATIENCE", 0.2)
    (told,) = problems(using(algorithm="lab-slow"))
    assert told.endswith("of the package 'lab-tools' was not done in 0.2 seconds")


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unnamed", "what it makes, rule 'start': the name does not begin with its id, 'lab-un"),
        ("unprefixed", "what it makes, custom: the function 'steer' does not begin with its id"),
        ("broken", "what it makes, custom: Python syntax error: "),
        ("absent", "it adds to a group 'none', and there is none"),
    ],
)
def test_what_a_package_makes_is_checked(name: str, said: str) -> None:
    (told,) = problems(using(algorithm=f"lab-{name}"))
    assert told.startswith(f"study.yaml:1: use[0]: {said}")


@pytest.mark.usefixtures("lab")
def test_a_name_that_is_taken_is_told_with_a_remedy() -> None:
    document = json.loads(using(algorithm="lab-again", id="rule", group="relax"))
    document["rules"][0]["id"] = "rule-start"
    assert problems(json.dumps(document)) == [
        "study.yaml:1: use[0]: it makes a rule 'rule-start', and there is one already: give this "
        "entry of 'use' another 'id'"
    ]


@pytest.mark.usefixtures("lab")
def test_an_argument_that_a_package_refuses_is_told_at_the_argument() -> None:
    document = json.loads(using(algorithm="lab-again", group="other"))
    document["jobs"].append({"name": "other", "command": "x"})
    assert problems(json.dumps(document)) == ["study.yaml:1: use[0].group: expected a better group"]


@pytest.mark.usefixtures("lab")
def test_packages_are_not_run_where_they_have_no_place() -> None:
    (told,) = problems(using(algorithm="lab-again", group="relax"), packages=False)
    assert "of the package 'lab-tools': those of packages are not run here; " in told
    assert "validate --expanded" in told


def test_two_packages_with_one_name_are_told(lab: Path) -> None:
    write_package(lab, "more-tools")
    (told,) = problems(using(algorithm="lab-again", group="relax"))
    assert "several packages have an algorithm named 'lab-again'" in told
    assert "lab-tools" in told
    assert "more-tools" in told


# -- the page -----------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "text", [text for kind, text in BLOCKS if kind == "yaml" and "in-rounds" not in text]
)
def test_every_example_of_the_page_loads(text: str) -> None:
    assert load_text(text, name="page", packages=False).expansion is not None


def test_the_first_example_of_the_page_makes_what_the_page_shows() -> None:
    blocks = [text for kind, text in BLOCKS if kind in ("yaml", "console")]
    printed = blocks[1].partition("\n")[2]
    assert (
        load_text(blocks[0], name="page").expansion
        == load_text(f"{printed}use: []", name="page").expansion
    )


@pytest.mark.parametrize("name", SHIPPED)
def test_the_page_has_every_argument(name: str) -> None:
    part = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert f"[`{name}`](#{name})" in PAGE
    assert all(f"`{argument}`" in part for argument in shipped(name).arguments)


def test_the_algorithm_of_the_page_works(lab: Path) -> None:
    source, document = (
        next(text for kind, text in BLOCKS if "in-rounds" in text and kind == wanted)
        if wanted != "python"
        else next(text for kind, text in BLOCKS if kind == "python")
        for wanted in ("python", "yaml")
    )
    (lab / "lab_tools.py").write_text(source)
    points = next(lab.glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[flux_ensemble.algorithms]\nin-rounds = lab_tools:IN_ROUNDS\n")
    spec = load_text(document, name="page")
    assert [(rule.id, rule.action.repetitions) for rule in spec.rules] == [
        ("in-rounds-first", 1),
        ("in-rounds-next", 4),
    ]
    told = problems(document.replace("5", "5000"))
    assert told == ["study.yaml:4: use[0].rounds: expected at most 1000 rounds, not 5000"]


# -- reading what was made --------------------------------------------------------------------


def test_validate_prints_the_document_as_it_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(TEXT)
    assert run_command(["validate", "--expanded", str(file)]) == 0
    text = capsys.readouterr().out
    assert load_text(text, packages=False).groups == load_text(TEXT).groups
    file.write_text(text)
    assert run_command(["validate", "--expanded", str(file)]) == 0
    assert capsys.readouterr().out == text


def test_validate_prints_nothing_of_a_document_that_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(TEXT.replace("factor: 2", "factor: 0"))
    assert run_command(["validate", "--expanded", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "use[0].duration.factor" in printed.err


@pytest.mark.parametrize("name", SHIPPED)
def test_every_argument_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    algorithm = shipped(name)
    assert algorithm.summary.endswith(".")
    for argument, schema in algorithm.arguments.items():
        assert schema["description"].endswith("."), argument
        assert "title" in schema, argument
        assert run_command(["explain", f"use.{name}.{argument}"]) == 0
        assert schema["title"].split()[-1] in capsys.readouterr().out
