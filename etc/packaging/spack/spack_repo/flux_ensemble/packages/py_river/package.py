# SPDX-License-Identifier: MIT

from spack_repo.builtin.packages.py_river.package import PyRiver as BuiltinPyRiver

from spack.package import *


class PyRiver(BuiltinPyRiver):
    """Spack's own River, in a version that flux-ensemble can use."""

    # PyPI has no sources of it for every release: the tag has.
    git = "https://github.com/online-ml/river.git"

    version("0.26.1", tag="0.26.1")

    depends_on("python@3.11:", type=("build", "run"), when="@0.26:")
    depends_on("py-numpy@2.2.5:2", type=("build", "run"), when="@0.26:")
    depends_on("py-scipy@1.14.1:1", type=("build", "run"), when="@0.26:")
    depends_on("py-narwhals@2:", type=("build", "run"), when="@0.26:")
