"""Loading the broker module where the service is not there."""

from __future__ import annotations

import errno
import sys
import urllib.parse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flux_ensemble.client import EnsembleError
from flux_ensemble.deploy import service_start
from flux_ensemble.deploy.service_start import DeployError, ensure_service, replace_service

APPEND = "FLUX_MODPROBE_PATH_APPEND"
NOT_LOADED = EnsembleError(errno.ENOSYS, "the ensemble service is not loaded")


class Handle:
    """A broker: its version, its environment, and what it says to `module.load`."""

    def __init__(
        self,
        version: str = "0.88.0",
        path: str | None = None,
        refusal: OSError | None = None,
        keeper: OSError | None = None,
        kind: Any = None,
    ) -> None:
        self.environment = {} if path is None else {APPEND: path}
        self.loaded: list[dict[str, Any]] = []
        self.modules: list[str] = []
        self._version = version
        self._refusals = {"ensemble": refusal, "ensemble-keeper": keeper}
        self._config = {} if kind is None else {"ensemble": {"service": kind}}

    def attr_get(self, name: str) -> str:
        if name != "version":
            raise FileNotFoundError(name)
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
        if topic == "config.get":
            return self._config
        if topic == "module.remove":
            self.modules.remove(payload["name"])
            return None
        assert topic == "module.load"
        name = Path(payload["path"]).stem
        refusal = self._refusals[name]
        if refusal is not None:
            raise refusal
        self.modules.append(name)
        self.loaded.append(payload)
        return None


class Instance:
    """A client; `mode` is the service's, None where there is none."""

    def __init__(self, handle: Handle, mode: str | None, keeper: str | None = None) -> None:
        self.handle = handle
        self._mode = mode
        self._keeper = keeper

    def list(self) -> Any:
        if self._mode is None:
            raise NOT_LOADED
        return []

    def status(self) -> Any:
        return {"service": {"mode": self._mode}}

    def keeper(self) -> Any:
        return None if self._keeper is None else {"state": self._keeper, "last_exit": "ended"}


def ensure(handle: Handle, answer: Any = NOT_LOADED, **options: Any) -> str | None:
    def ask() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    client: Any = SimpleNamespace(handle=handle, list=ask, keeper=lambda: None)
    return ensure_service(client, **options)


def replace(handle: Handle, mode: str | None, keeper: str | None = None) -> str:
    client: Any = Instance(handle, mode, keeper)
    return replace_service(client)


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
    monkeypatch.setattr(service_start, "module_problem", lambda: "install it for Flux's Python")
    with pytest.raises(DeployError, match=r"^install it for Flux's Python$"):
        ensure(handle)
    monkeypatch.setattr(service_start, "module_problem", lambda: None)
    with pytest.raises(
        DeployError, match=r"does not load \(Connection reset by peer\).*`flux dmesg`"
    ):
        ensure(handle)


CANNOT_IMPORT = OSError(errno.ENOENT, "No such file or directory")


def test_where_fluxs_python_cannot_import_it_the_keeper_is_loaded_and_this_is_said() -> None:
    handle = Handle(refusal=CANNOT_IMPORT)
    said = ensure(handle)
    assert handle.modules == ["ensemble-keeper"]
    (request,) = handle.loaded
    assert request["args"] == [f"python={urllib.parse.quote(sys.executable)}"]
    assert said is not None
    assert said.endswith("'ensemble-keeper', because Flux's own Python cannot import it")


def test_a_python_that_is_too_old_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "/opt/lib/flux/python3.9/flux/__init__.py"
    monkeypatch.setitem(sys.modules, "flux", SimpleNamespace(__file__=file))
    handle = Handle(refusal=OSError(errno.EIO, "tried"))
    said = ensure(handle)
    assert said is not None
    assert said.endswith("because Flux's own Python is too old to run it")
    file = "/opt/lib/flux/python3.12/flux/__init__.py"
    monkeypatch.setitem(sys.modules, "flux", SimpleNamespace(__file__=file))
    handle = Handle()
    ensure(handle)
    assert handle.modules == ["ensemble"]


@pytest.mark.parametrize(
    ("kind", "isolate", "modules"),
    [
        (None, False, ["ensemble"]),
        ("module", False, ["ensemble"]),
        ("process", False, ["ensemble-keeper"]),
        ("module", True, ["ensemble-keeper"]),
    ],
)
def test_the_configuration_and_the_option_choose(
    kind: str | None, isolate: bool, modules: list[str]
) -> None:
    handle = Handle(kind=kind)
    ensure(handle, isolate=isolate)
    assert handle.modules == modules


def test_a_module_that_the_site_wants_is_not_replaced_by_the_keeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_start, "module_problem", lambda: "install it for Flux's Python")
    handle = Handle(refusal=CANNOT_IMPORT, kind="module")
    with pytest.raises(DeployError, match="install it"):
        ensure(handle)
    assert handle.modules == []


@pytest.mark.parametrize("kind", ["Module", True, ["module"]])
def test_another_kind_is_refused(kind: Any) -> None:
    with pytest.raises(DeployError, match="service: expected one of module, process, not"):
        ensure(Handle(kind=kind))


def test_a_keeper_that_cannot_start_the_service_is_explained() -> None:
    handle = Handle(keeper=OSError(errno.ECHILD, "No child processes"), kind="process")
    with pytest.raises(DeployError, match=r"of 'ensemble-keeper' \(No child.*`flux dmesg`"):
        ensure(handle)


def test_a_module_that_is_there_is_not_isolated_without_a_word() -> None:
    client: Any = Instance(Handle(), "module")
    with pytest.raises(DeployError, match="`flux ensemble supervise`"):
        ensure_service(client, isolate=True)


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("given up", "too often.*`flux ensemble supervise`"), ("waiting", "started again: retry")],
)
@pytest.mark.parametrize("isolate", [False, True])
def test_what_a_keeper_starts_again_or_has_given_up_is_not_loaded_into_the_broker(
    state: str, sentence: str, isolate: bool
) -> None:
    handle = Handle()
    client: Any = Instance(handle, None, state)
    with pytest.raises(DeployError, match=sentence):
        ensure_service(client, isolate=isolate)
    assert handle.modules == []


def test_supervise_replaces_the_module_and_a_keeper_that_has_given_up() -> None:
    for mode, keeper, before in [
        ("module", None, ["ensemble"]),
        (None, "given up", ["ensemble-keeper"]),
        (None, None, []),
    ]:
        handle = Handle()
        handle.modules = list(before)
        assert "started beside the broker" in replace(handle, mode, keeper)
        assert handle.modules == ["ensemble-keeper"]


def test_supervise_leaves_what_is_kept_and_what_others_have_started() -> None:
    handle = Handle()
    assert "already" in replace(handle, "process", "running")
    with pytest.raises(DeployError, match="what started that"):
        replace(handle, "client")
    assert handle.modules == []
