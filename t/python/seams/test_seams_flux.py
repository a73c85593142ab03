"""Features of documents in situations that only Flux has; t/seams/README.md."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "t"))

from seams import matrix  # noqa: E402
from seams.features import FEATURES  # noqa: E402
from seams.onflux import ON_FLUX, play_on_flux  # noqa: E402

pytestmark = pytest.mark.flux

#: What an instance of one broker has in a short run; `make chaos` has all features.
SHORT = ("sweep", "search", "retries", "custom", "best", "failing")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory with a short path, as there are sockets in it."""
    path = Path(tempfile.mkdtemp(prefix="seams-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("name", ["queue-disabled", "service-killed", "reran-on-flux"])
def test_features_come_to_what_they_have_to_on_flux_where(name: str, directory: Path) -> None:
    situation, features = ON_FLUX[name], [FEATURES[one] for one in SHORT]
    problems = play_on_flux(directory, features, situation, 2)
    assert matrix.expected(problems, features, [situation]) == []
