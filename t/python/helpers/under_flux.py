"""Runs a helper inside a Flux instance of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent

#: Many cores that are not there, so that many jobs that do nothing run at once.
FAKE_CORES = """
[resource]
noverify = true
[[resource.config]]
hosts = "fake"
cores = "0-63"
"""


def under_flux(
    tmp_path: Path,
    what: str,
    config: str = "",
    *,
    script: str = "flux_member.py",
    size: int = 1,
    seconds: int = 500,
) -> Any:
    """What a script finds in an instance of its own."""
    path = tmp_path / "flux.toml"
    path.write_text(config)
    done = subprocess.run(
        [
            *("flux", "start", f"--test-size={size}", f"--config-path={path}"),
            *(sys.executable, SCRIPTS / script, what),
        ],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found.pop("errors", None)
    return found
