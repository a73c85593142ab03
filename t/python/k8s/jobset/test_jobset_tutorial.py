"""The tutorial without the Flux Operator: its files are checked and run as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from apiserver import CONTROLLERS, MARKS, ApiServer
from jobset_cluster import JobSetCluster
from pages import ROOT, comparable, read_page, write_files
from patience import PATIENCE
from test_jobset_runs import HOME
from test_jobset_runs import api as api
from test_jobset_runs import cluster as cluster

pytestmark = [*MARKS, CONTROLLERS]

PAGE = ROOT / "docs" / "tutorials" / "kubernetes.md"


def test_the_commands_print_what_the_page_shows(
    api: ApiServer, cluster: JobSetCluster, tmp_path: Path
) -> None:
    text = PAGE.read_text()
    write_files(read_page(text), tmp_path)
    (commands,) = re.findall(r"^```\n(flux-ensemble validate .*?)^```", text, re.M | re.S)
    (shown,) = re.findall(r"^```text\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "config").write_text(api.kubeconfig(HOME))
    done = subprocess.run(
        ["sh", "-ec", commands],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(tmp_path / "config"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    printed = set(comparable(done.stdout.splitlines(), "counts differ"))
    for line in comparable(shown.splitlines(), "counts differ"):
        # How often it is told depends on how long all takes.
        assert line in printed or "progress" in line, (line, done.stdout)
    assert len(cluster.started) == 2
