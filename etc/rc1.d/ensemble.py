"""Start the ensemble service with the broker.

Run by flux-modprobe(1) as part of rc1, in Flux's Python. A service that cannot be loaded
must not keep the instance from starting, so nothing is raised here: the reason goes to
the broker's log. Installed with flux-ensemble this file knows where the module is. A copy
elsewhere asks the Python that the `flux-ensemble` on PATH belongs to.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from flux.importer import import_path
from flux.modprobe import task

#: The folder of which this file is `etc/rc1.d/ensemble.py`.
HOME = Path(__file__).resolve().parents[2]


def locate():
    """The file and the arguments of the broker module.

    Raises:
        OSError, ValueError, subprocess.SubprocessError: flux-ensemble is not found.
    """
    if HOME.name == "flux_ensemble":
        return str(HOME / "modules" / "ensemble.py"), []
    command = shutil.which("flux-ensemble")
    if command is None:
        raise FileNotFoundError("there is no flux-ensemble on PATH")
    python = Path(command).resolve().with_name("python3")
    module = json.loads(
        subprocess.run(
            [str(python), "-m", "flux_ensemble.bindings"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        ).stdout
    )
    return module["path"], module["args"]


@task("load-ensemble", ranks="0", after=["*"])
def load_ensemble(context):
    """Load the broker module `ensemble` once all else is there."""
    try:
        path, args = locate()
        # So that it can be loaded by its name later on.
        folders = [os.path.dirname(path), context.getenv("FLUX_MODULE_PATH", "")]
        context.setenv("FLUX_MODULE_PATH", ":".join(filter(None, folders)))
        module = context.modprobe.get_task("ensemble")
        if module.enabled(context):
            module.module = path
            context.setopt("ensemble", " ".join(args))
            module.runtask(context)
            supervise(context, path, args)
    except Exception as error:
        print(f"the ensemble service is not loaded: {error}", file=sys.stderr)


def supervise(context, path, args):
    """Have the module loaded again after a crash, where the site wants that."""
    configured = context.conf_get("ensemble", {})
    if not isinstance(configured, dict) or configured.get("supervise") is not True:
        return
    try:
        # The package's file, which needs nothing but Flux's Python.
        package = Path(path).resolve().parents[1]
        supervision = import_path(str(package / "deploy" / "supervision.py"))
        supervision.supervise(context.handle, path, args)
    except Exception as error:
        print(f"the ensemble service is not supervised: {error}", file=sys.stderr)
