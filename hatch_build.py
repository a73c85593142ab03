"""Builds what protoc generates from flux_ensemble/rpc/protocol/*.proto; hatchling calls it.

The modules (`*_pb2.py`, `*_pb2_grpc.py`) and their types (`*_pb2.pyi`) lie beside their
sources, in a checkout too, and are not under version control. They come from the release
of grpcio-tools that pyproject.toml names under [build-system], which sets the oldest
grpcio and protobuf that they run with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTOCOL = Path("flux_ensemble/rpc/protocol")


class GenerateProtocol(BuildHookInterface):
    """Runs protoc before a wheel, editable or not, is put together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Generate the code and name it to the wheel, which leaves ignored files out.

        Raises:
            RuntimeError: protoc refuses a source; it has said why on standard error.
        """
        from grpc_tools import protoc

        root = Path(self.root)
        # Imports in the generated code follow from the paths, so these start at the root.
        sources = [path.relative_to(root) for path in sorted((root / PROTOCOL).glob("*.proto"))]
        out = [f"--{kind}={root}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
        if protoc.main(["protoc", f"--proto_path={root}", *out, *map(str, sources)]) != 0:
            raise RuntimeError(f"protoc could not compile {', '.join(map(str, sources))}")
        build_data["artifacts"] += [f"/{PROTOCOL}/*_pb2*.py", f"/{PROTOCOL}/*_pb2.pyi"]
