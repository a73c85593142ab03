"""Certificates that are renewed while they are in use: their files are read again when they change.

Kubernetes puts the files of a Secret in place of the old ones some time after the Secret has
changed, and whoever renews certificates by hand replaces one file after the other. So what is read
counts only if it fits together (`TlsFiles.check`); until then what was read before does.
"""

from __future__ import annotations

import logging
import os
import threading

import grpc

from flux_ensemble.gateway.tls import Contents, TlsError, TlsFiles

log = logging.getLogger(__name__)

#: What tells that a file has changed: inode, size, time of change.
_Mark = tuple[int, int, int] | None


class Reloaded:
    """The files of one side as they are now; thread-safe.

    Args:
        files: where they are.

    Raises:
        TlsError: they cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._marks = self._look()
        self._contents = files.read()

    @property
    def t_expires(self) -> float:
        """When the first of the certificates expires, in epoch seconds."""
        return self._contents.t_expires

    def renewed(self) -> Contents | None:
        """What is in the files, if that has changed since the last call and can be used."""
        with self._lock:
            marks = self._look()
            if marks == self._marks:
                return None
            try:
                contents = self._files.read()
            except TlsError as exc:
                log.warning("the certificates in use stay in use: %s", exc)
                return None
            self._marks = marks
            if contents == self._contents:
                return None
            self._contents = contents
            log.info("the certificate %s has been read again", self._files.cert)
            return contents

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server, for which the files are looked at for each connection."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._contents), self._fetch, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client with what was read last."""
        contents = self._contents
        return grpc.ssl_channel_credentials(
            root_certificates=contents.ca,
            private_key=contents.key,
            certificate_chain=contents.cert,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        contents = self.renewed()
        return None if contents is None else _configuration(contents)

    def _look(self) -> list[_Mark]:
        return [_mark(file) for file in (self._files.cert, self._files.key, self._files.ca)]


def _configuration(contents: Contents) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(contents.key, contents.cert)], root_certificates=contents.ca
    )


def _mark(file: os.PathLike[str]) -> _Mark:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        # Why it cannot be read is said where it is read.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
