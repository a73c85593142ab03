"""The two protocols of the gRPC service, and what protoc makes of them.

`make protocols` generates `*_pb2.py`, `*_pb2_grpc.py` and their types `*_pb2.pyi` from the .proto
files.
"""

#: Trailing metadata of the errors that this service decides on. By this a client knows them
#: from those of gRPC, which has status codes in common with it.
SAID_BY_SERVICE = (("flux-ensemble", "error"),)
