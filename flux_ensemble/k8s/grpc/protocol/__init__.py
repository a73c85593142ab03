"""The two protocols of the gRPC service, and the code that protoc generates from them.

`make protocols` generates `*_pb2.py`, `*_pb2_grpc.py` and their types `*_pb2.pyi` from the .proto
files.
"""

#: Trailing metadata of the errors that this service raises itself. By this a client distinguishes
#: them from errors of gRPC with the same status code.
SAID_BY_SERVICE = (("flux-ensemble", "error"),)
