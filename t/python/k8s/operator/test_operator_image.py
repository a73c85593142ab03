"""With what the container file installs, documents are read as anywhere, and all commands run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ensembles import KUBERNETES
from image_packages import REMOVED, Image, megabytes

from flux_ensemble.document.loading import DocumentError, load_text
from flux_ensemble.metrics.statistic_trial import _univariate
from flux_ensemble.metrics.univariate import UNUSED

GOLDEN = Path(__file__).with_name("golden")

#: The image that it is made from, and what it may be, in MB.
BASE, MOST = 125, 300

#: Arguments of River's statistics that do not do without.
ARGUMENTS = {
    "AutoCorr": {"lag": 2},
    "BayesianMean": {"prior": 1.0, "prior_weight": 2.0},
    "RollingQuantile": {"q": 0.5, "window_size": 5},
    **{f"Rolling{name}": {"window_size": 5} for name in ("AbsMax", "IQR", "Max", "Min", "Mode")},
    "RollingPeakToPeak": {"window_size": 5},
}

VALUES = """
import json
from flux_ensemble.metrics.names import Statistic
from flux_ensemble.metrics.stream import Stream
def values(kinds):
    stream = Stream([Statistic(kind, kind, arguments) for kind, arguments in kinds.items()])
    for value in (3, 1.5, 4, 1, 5, 9, 2.5, 6, 5, 3):
        stream.update(value)
    return {kind: stream.get(kind) for kind in kinds}
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image") / "packages")


def test_the_image_is_small() -> None:
    assert BASE + megabytes() < MOST


def test_what_is_left_out_is_not_there(image: Image) -> None:
    assert set(UNUSED) < set(REMOVED)
    found = image.python(
        "from importlib.util import find_spec\n"
        "import flux_ensemble.metrics.univariate\n"
        f"print([name for name in {REMOVED} if find_spec(name)])"
    )
    assert found == "[]\n"


def test_every_statistic_is_what_it_is_elsewhere(image: Image) -> None:
    kinds = {name: ARGUMENTS.get(name, {}) for name in _univariate().values()}
    here: dict[str, object] = {}
    exec(f"{VALUES}\nhere |= values({kinds})", {"here": here})
    there = json.loads(image.python(f"{VALUES}\nprint(json.dumps(values({kinds})))"))
    assert there == here
    assert len(there) > 20


def test_a_document_is_judged_as_elsewhere(image: Image, tmp_path: Path) -> None:
    wrong = "jobs: [{name: a, command: a}]\nmetrics:\n"
    wrong += "  - {name: b, statistic: rolling_max}\n  - {name: c, statistic: nope}\n"
    (tmp_path / "a.yaml").write_text(wrong)
    with pytest.raises(DocumentError) as caught:
        load_text(wrong, name="a")
    good = GOLDEN / "statistics.yaml"
    told = image.run("validate", str(good), str(tmp_path / "a.yaml"))
    assert (told.returncode, f"{good}: ok: " in told.stdout) == (2, True), told.stderr
    for problem in str(caught.value).splitlines():
        assert problem.removeprefix("document:") in told.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["operator", "render", str(KUBERNETES / "example.yaml")], 0, "kind: MiniCluster"),
        (["operator", "run"], 2, "there is no Kubernetes cluster to talk to"),
        (["grpc", "start", "--backend=kubernetes"], 2, "there is no Kubernetes cluster to talk to"),
    ],
    ids=["render", "operator", "service"],
)
def test_the_commands_in_the_manifests_run(
    image: Image, words: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(image.environment, "KUBECONFIG", "/nonexistent")
    done = image.run(*words)
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stderr
