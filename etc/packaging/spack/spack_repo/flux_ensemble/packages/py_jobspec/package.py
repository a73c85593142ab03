# SPDX-License-Identifier: MIT

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyJobspec(PythonPackage):
    """A translation layer for a jobspec specification to cluster execution."""

    homepage = "https://github.com/compspec/jobspec"
    pypi = "jobspec/jobspec-0.1.15.tar.gz"

    license("MIT")

    version("0.1.15", sha256="8cf0e609c5e6c0b8bcf2ff013ab70084315a319eafe694465c0bf0797fb48411")

    depends_on("py-setuptools", type="build")
    depends_on("py-jsonschema", type=("build", "run"))
    depends_on("py-pyyaml", type=("build", "run"))
