"""The two protocols of the gRPC service, and what protoc makes of them.

`hatch_build.py` compiles the .proto files when the package is built or installed.
"""

#: Trailing metadata of the errors that this service decides on. By this a client knows them
#: from those of gRPC, which has status codes in common with it.
SAID_BY_SERVICE = (("flux-ensemble", "error"),)
