# SPDX-License-Identifier: MIT

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyGrpcioHealthChecking(PythonPackage):
    """Standard Health Checking Service for gRPC."""

    homepage = "https://grpc.io"
    pypi = "grpcio-health-checking/grpcio_health_checking-1.78.0.tar.gz"

    license("Apache-2.0")

    version("1.78.0", sha256="78526d5c60b9b99fd18954b89f86d70033c702e96ad6ccc9749baf16136979b3")

    depends_on("python@3.9:", type=("build", "run"))
    depends_on("py-setuptools@77.0.1:", type="build")
    depends_on("py-protobuf@6.31.1:6", type=("build", "run"))
    depends_on("py-grpcio@1.78:", type=("build", "run"))
