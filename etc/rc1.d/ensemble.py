"""Start the ensemble service with the broker.

Run by flux-modprobe(1) as part of rc1, in Flux's Python, of 3.6 or newer. The service is a module
of the broker where that Python can run it, and a process beside the broker elsewhere; `[ensemble]
service` of the configuration chooses. A service that cannot be loaded must not keep the instance
from starting, so nothing is raised here: the reason goes to the broker's log. Installed with
flux-ensemble this file knows where the modules are. A copy elsewhere asks the Python that the
`flux-ensemble` on PATH belongs to.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from flux.modprobe import task

#: The folder of which this file is `etc/rc1.d/ensemble.py`.
HOME = Path(__file__).resolve().parents[2]

#: The service as a module of the broker, and the one that runs it beside the broker.
MODULE, KEEPER = "ensemble", "ensemble-keeper"


def locate():
    """The files and the arguments of the two broker modules, by name.

    Raises:
        OSError, ValueError, subprocess.SubprocessError: flux-ensemble is not found.
    """
    if HOME.name == "flux_ensemble":
        return {name: (str(HOME / "modules" / (name + ".py")), []) for name in (MODULE, KEEPER)}
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
        ).stdout.decode()
    )
    keeper = module["keeper"]
    return {MODULE: (module["path"], module["args"]), KEEPER: (keeper["path"], keeper["args"])}


def chosen(context):
    """The modules to try, in their order: what the site wants, or else what works.

    Raises:
        ValueError: the site wants something else.
    """
    configured = context.conf_get("ensemble", {})
    kind = configured.get("service") if isinstance(configured, dict) else None
    works = [KEEPER] if sys.version_info < (3, 11) else [MODULE, KEEPER]
    kinds = {None: works, "module": [MODULE], "process": [KEEPER]}
    if isinstance(kind, (dict, list)) or kind not in kinds:
        raise ValueError("[ensemble] service: expected module or process, not {!r}".format(kind))
    return kinds[kind]


@task("load-ensemble", ranks="0", after=["*"])
def load_ensemble(context):
    """Load one of the two modules once all else is there."""
    try:
        if not context.modprobe.get_task(MODULE).enabled(context):
            return
        modules = locate()
        # So that they can be loaded by name later on.
        folders = [os.path.dirname(modules[MODULE][0]), context.getenv("FLUX_MODULE_PATH", "")]
        context.setenv("FLUX_MODULE_PATH", ":".join(filter(None, folders)))
        names = chosen(context)
        for name in names:
            try:
                load(context, name, *modules[name])
                return
            except FileNotFoundError:  # Flux's Python cannot import it
                if name == names[-1]:
                    raise
    except Exception as error:
        print("the ensemble service is not loaded: {}".format(error), file=sys.stderr)


def load(context, name, path, args):
    """Load one module, as flux-modprobe(1) does."""
    module = context.modprobe.get_task(name)
    module.module = path
    context.setopt(name, " ".join(args))
    module.runtask(context)
