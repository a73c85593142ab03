# SPDX-License-Identifier: MIT

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyFluxEnsemble(PythonPackage):
    """Ensembles of jobs on Flux: groups of jobs, and rules that react to what the jobs do."""

    homepage = "https://pypi.org/project/flux-ensemble"
    pypi = "flux_ensemble/flux_ensemble-0.2.0.tar.gz"

    license("MIT")

    # The checksum of a release is known when its files are (README.md beside the repository).
    version("0.2.0")

    variant("compiled", default=True, description="Compile what works for each event of each job")
    variant("flux", default=True, description="Install Flux; without it documents run locally")
    variant("grpc", default=False, description="The gRPC service")

    depends_on("c", type="build", when="+compiled")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("python@3.11:", type=("build", "link", "run"), when="+compiled")

    depends_on("py-hatchling@1.25:", type="build")
    depends_on("py-mypy@2.4:", type="build", when="+compiled")
    depends_on("py-setuptools@77:", type="build", when="+compiled")

    depends_on("py-river@0.24.2:", type=("build", "run"))
    depends_on("py-scipy@1.15:", type=("build", "run"))
    depends_on("py-pyyaml@6:", type=("build", "run"))
    depends_on("py-jsonschema@4.18:", type=("build", "run"))
    depends_on("py-jobspec@0.1.15:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-cffi@1.15:", type=("build", "run"))
    depends_on("py-ply@3.11:", type=("build", "run"))

    with when("+grpc"):
        depends_on("py-grpcio@1.76:", type=("build", "run"))
        depends_on("py-grpcio-health-checking@1.76:", type=("build", "run"))
        depends_on("py-grpcio-reflection@1.76:", type=("build", "run"))
        depends_on("py-protobuf@6.31.1:", type=("build", "run"))
        depends_on("py-cryptography@42:", type=("build", "run"))

    depends_on("flux-core@0.84:", type="run", when="+flux")

    def setup_build_environment(self, env):
        env.set("FLUX_ENSEMBLE_COMPILE", "1" if self.spec.satisfies("+compiled") else "0")
