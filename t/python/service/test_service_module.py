"""The file that Flux's own Python runs: its arguments, and where it finds packages."""

from __future__ import annotations

import site
import sys

import pytest

from flux_ensemble.modules import ensemble as module


def test_arguments_are_percent_encoded_and_sites_add_up() -> None:
    given = ("site=/a%20b", "log-level=debug", "site=/c")
    assert module.parse(given) == (["/a b", "/c"], "debug")
    assert module.parse(()) == ([], "info")


@pytest.mark.parametrize("given", ["colour=red", "site", "site=", "/a", "log-level"])
def test_an_unknown_argument_is_named_with_those_that_there_are(given: str) -> None:
    with pytest.raises(ValueError, match=r"unknown argument '.*' \(arguments: site=") as caught:
        module.parse((given,))
    assert repr(given) in str(caught.value)


def test_packages_come_after_the_standard_library_and_before_the_systems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = site.getsitepackages()[0]
    monkeypatch.setattr(sys, "path", ["/flux", "/stdlib", system, "/more"])
    module.add_to_path(["/venv", "/flux"])
    assert sys.path == ["/flux", "/stdlib", "/venv", system, "/more"]


def test_packages_that_are_behind_the_systems_come_before(monkeypatch: pytest.MonkeyPatch) -> None:
    system = site.getsitepackages()[0]
    monkeypatch.setattr(sys, "path", ["/flux", "/stdlib", system, "/own", "/more"])
    module.add_to_path(["/own", "/clone"])
    assert sys.path == ["/flux", "/stdlib", "/own", "/clone", system, "/more"]


def test_packages_come_last_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/flux", "/stdlib"])
    module.add_to_path(["/venv"])
    assert sys.path == ["/flux", "/stdlib", "/venv"]


def test_a_missing_dependency_is_named_with_what_to_do() -> None:
    reason = module.explain(ImportError("No module named 'river'", name="river"))
    assert "cannot import river" in reason
    assert "site=DIRECTORY" in reason
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in reason
