"""Loading the broker module where the service is not there."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.client import EnsembleError
from flux_ensemble.deploy import loading
from flux_ensemble.deploy.loading import DeployError, ensure_service

APPEND = "FLUX_MODPROBE_PATH_APPEND"
NOT_LOADED = EnsembleError(errno.ENOSYS, "the ensemble service is not loaded")


class Handle:
    """A broker: its version, its environment, and what it says to `module.load`."""

    def __init__(
        self, version: str = "0.88.0", path: str | None = None, refusal: OSError | None = None
    ) -> None:
        self.environment = {} if path is None else {APPEND: path}
        self.loaded: list[dict[str, Any]] = []
        self._version = version
        self._refusal = refusal

    def attr_get(self, name: str) -> str:
        assert name == "version"
        return self._version

    def rpc(self, topic: str, payload: dict[str, Any], nodeid: int) -> Any:
        assert nodeid == 0
        return SimpleNamespace(get=lambda: self._answer(topic, payload))

    def _answer(self, topic: str, payload: dict[str, Any]) -> Any:
        if topic == "broker.getenv":
            return {"env": self.environment}
        if topic == "broker.setenv":
            self.environment |= payload["env"]
            return None
        assert topic == "module.load"
        if self._refusal is not None:
            raise self._refusal
        self.loaded.append(payload)
        return None


def ensure(handle: Handle, answer: Any = NOT_LOADED) -> None:
    def ask() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    ensure_service(SimpleNamespace(handle=handle, list=ask))  # type: ignore[arg-type]


def test_a_service_that_answers_is_left_alone() -> None:
    handle = Handle()
    ensure(handle, [])
    assert (handle.loaded, handle.environment) == ([], {})


def test_the_module_is_loaded_with_the_directories_of_its_dependencies() -> None:
    handle = Handle()
    ensure(handle)
    (request,) = handle.loaded
    assert request["path"].endswith("flux_ensemble/modules/ensemble.py")
    assert all(argument.startswith("site=/") for argument in request["args"])


def test_the_module_is_declared_once_so_that_it_is_removed_when_the_instance_ends() -> None:
    handle = Handle(path="/of/the/site")
    ensure(handle)
    ensure(handle)
    site, ours = handle.environment[APPEND].split(":")
    assert site == "/of/the/site"
    assert (Path(ours) / "modprobe.d" / "ensemble.toml").exists()


def test_a_service_that_refuses_is_not_replaced() -> None:
    with pytest.raises(EnsembleError, match="guests"):
        ensure(Handle(), EnsembleError(errno.EPERM, "not for guests"))


def test_a_module_that_someone_else_loads_meanwhile_will_do() -> None:
    ensure(Handle(refusal=OSError(errno.EEXIST, "module exists")))


@pytest.mark.parametrize(
    ("handle", "sentence"),
    [
        (Handle(version="0.82.0"), r"Flux 0\.82\.0 has no .*`flux ensemble serve`"),
        (Handle(refusal=OSError(errno.EPERM, "not permitted")), "only the owner"),
    ],
)
def test_where_it_cannot_be_loaded_a_sentence_says_why(handle: Handle, sentence: str) -> None:
    with pytest.raises(DeployError, match=sentence):
        ensure(handle)


def test_a_module_that_does_not_load_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle(refusal=OSError(errno.ECONNRESET, "Connection reset by peer"))
    monkeypatch.setattr(loading, "module_problem", lambda: "install it for Flux's Python")
    with pytest.raises(DeployError, match=r"^install it for Flux's Python$"):
        ensure(handle)
    monkeypatch.setattr(loading, "module_problem", lambda: None)
    with pytest.raises(
        DeployError, match=r"does not load \(Connection reset by peer\).*`flux dmesg`"
    ):
        ensure(handle)
