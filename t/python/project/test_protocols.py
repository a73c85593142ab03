"""What protoc generated of the protocols is of the .proto files that lie beside it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from flux_ensemble.k8s.grpc.protocol import (
    ensemble_pb2,
    ensemble_pb2_grpc,
    predecessors_pb2,
    predecessors_pb2_grpc,
)

ROOT = Path(__file__).parents[3]

BOTH = [(ensemble_pb2, ensemble_pb2_grpc), (predecessors_pb2, predecessors_pb2_grpc)]


@pytest.mark.parametrize(("messages", "services"), BOTH)
def test_what_protoc_generated_is_of_the_protocol(
    messages: ModuleType, services: ModuleType, tmp_path: Path
) -> None:
    name, out = messages.DESCRIPTOR.name, tmp_path / "descriptors"
    assert protoc.main(["", f"--proto_path={ROOT}", f"--descriptor_set_out={out}", name]) == 0
    (now,) = FileDescriptorSet.FromString(out.read_bytes()).file
    generated = FileDescriptorProto.FromString(messages.DESCRIPTOR.serialized_pb)
    assert _names_left_out(generated) == _names_left_out(now), "run `make protocols`"
    for service in now.service:
        stub = getattr(services, f"{service.name}Servicer")
        assert {method.name for method in service.method} <= set(vars(stub))


def _names_left_out(file: FileDescriptorProto) -> FileDescriptorProto:
    """Without the names of fields in JSON, which protoc says here and does not say there."""
    front: list[DescriptorProto] = list(file.message_type)
    while front:
        message = front.pop()
        front += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return file
