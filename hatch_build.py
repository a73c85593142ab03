"""Builds what is not in the sources; hatchling calls it before it puts a wheel together.

The compiled modules: mypyc compiles the modules that pyproject.toml lists, those that work for
each event of each job, and the wheel has them beside their sources, which Python takes in their
place. An editable installation has none, so that what is edited is what runs. Where they cannot
be compiled (there is no C compiler, or no Python.h) the wheel is the same without them; the
environment variable FLUX_ENSEMBLE_COMPILE makes that an error (1), or leaves them out (0).

What a site copies: `etc/` comes into the package, without what is for packagers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Set to 0 it leaves the compiled modules out; with 1 the build fails where they cannot be.
SWITCH = "FLUX_ENSEMBLE_COMPILE"

#: What of `etc/` is for packagers.
NOT_INSTALLED = {"packaging"}

# Only what is compiled has to type-check here; what it imports may not even be installed, and
# where much is, most of the time would go to types of packages that have nothing to do with it.
_MYPY = """
[mypy]
no_site_packages = True
follow_imports = silent
disable_error_code = import-not-found, import-untyped
"""

# Compiles the modules that are its arguments.
#
# Nearly all of what it makes are calls of what Python has in C, so most of what a C compiler can do
# makes them little quicker. -Og takes some two thirds of the time of -O1; what it lacks is that it
# does not inline the functions of Python.h, such as Py_DECREF, unless it is told to. With that, and
# with hidden symbols, which are called directly, the engine is as fast as with -O2. -Wall, with
# which Pythons are mostly built, takes a quarter more, to warn about what mypyc makes.
_COMPILE = """
import os
import shutil
import sys
from mypyc.build import mypycify
from setuptools import Distribution, Extension
# Two halves of the same size, for two compilers side by side; most calls are within one. What of
# the engine is about members, records and rules that fire is in the other one.
aside = {"actions", "dispatch", "members", "placement", "records"}
engine = [
    path
    for path in sys.argv[1:]
    if "/engine/" in path and os.path.basename(path)[:-3] not in aside
]
others = [path for path in sys.argv[1:] if path not in engine]
inline = "-Dinline=inline __attribute__((always_inline))"
modules = mypycify(
    ["--config-file=mypy.ini", *sys.argv[1:]],
    separate=[(engine, "flux_ensemble_engine"), (others, "flux_ensemble_others")],
    opt_level="g",
    debug_level="0",
)
libraries = [module for module in modules if module.name.endswith("__mypyc")]
for library in libraries:
    library.extra_compile_args += ["-Wno-all", "-w", "-fvisibility=hidden", inline]
# Besides, mypyc makes a shim for each module, by whose name that is imported. They are compiled as
# one, and each module has a copy of that: Python finds the function that has the module's name, so
# no two modules may have the same one. A second function, for packages, is the same in all of them
# and left out.
shims = [module for module in modules if module not in libraries]
with open("build/shims.c", "w") as combined:
    for shim in shims:
        for source in shim.sources:
            text = open(source).read()
            combined.write(text[: text.index("PyMODINIT_FUNC PyInit___init__")])
together = Extension("shims", ["build/shims.c"], extra_compile_args=["-O0", "-w"])
command = Distribution({"ext_modules": [*libraries, together]}).get_command_obj("build_ext")
command.build_lib = "compiled"
command.parallel = os.cpu_count()
command.ensure_finalized()
command.run()
built = command.get_ext_fullpath("shims")
for shim in shims:
    path = command.get_ext_fullpath(shim.name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(built, path)
os.remove(built)
# What is left is to give back the memory of mypyc, a piece at a time, which takes two seconds.
os._exit(0)
"""


def _last(text: str) -> str:
    """Return the last line that has something in it."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


class Build(BuildHookInterface):
    """Compiles modules, and adds what a site copies."""

    _aside: tempfile.TemporaryDirectory[str]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them, and name all of it to the wheel.

        Raises:
            RuntimeError: modules that have to be compiled cannot be; why is on standard error.
        """
        self._aside = tempfile.TemporaryDirectory()
        for path in Path(self.root, "etc").iterdir():
            if path.name not in NOT_INSTALLED:
                build_data["force_include"][str(path)] = f"flux_ensemble/etc/{path.name}"
        if version == "standard" and os.environ.get(SWITCH) != "0":
            modules = len(self.config["compiled"])
            self.app.display_info(
                f"Compiling {modules} modules takes about a minute; {SWITCH}=0 leaves it out."
            )
            self._compile(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built aside."""
        self._aside.cleanup()

    def _compile(self, build_data: dict[str, Any]) -> None:
        """Compile a copy of the sources."""
        work = Path(self._aside.name)
        shutil.copytree(Path(self.root, "flux_ensemble"), work / "flux_ensemble")
        (work / "mypy.ini").write_text(_MYPY)
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, *self.config["compiled"]],
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            if os.environ.get(SWITCH) == "1":
                self.app.display_error(done.stdout)
                raise RuntimeError(f"the modules cannot be compiled, and {SWITCH}=1 asks for that")
            # No error: where there is no C compiler, that is how it is.
            self.app.display_info(
                "They cannot be compiled here, and nothing else differs: flux-ensemble takes more "
                f"time for each job. {SWITCH}=1 shows why. The last line was: {_last(done.stdout)}"
            )
            return
        for path in sorted((work / "compiled").rglob("*.so")):
            build_data["force_include"][str(path)] = str(path.relative_to(work / "compiled"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
