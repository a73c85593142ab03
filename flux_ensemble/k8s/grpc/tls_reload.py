"""Certificates that are renewed while they are in use: changed files are read again.

Kubernetes replaces the files of a Secret some time after the Secret has changed, and a person who
renews certificates by hand replaces one file after the other. So new contents count only if they
fit together (`TlsFiles.check`); until then the previous contents stay in use.
"""

from __future__ import annotations

import logging
import os
import threading

import grpc

from flux_ensemble.k8s.grpc.tls import Contents, TlsError, TlsFiles

log = logging.getLogger(__name__)

#: Mark by which a changed file is recognized: inode, size, time of change.
_Mark = tuple[int, int, int] | None


class Reloaded:
    """The files of one side, kept current; thread-safe.

    Args:
        files: their paths.

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
        """Return the contents, if they have changed since the last call and can be used."""
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
        """Return credentials of a server, for which the files are checked at each connection."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._contents), self._fetch, require_client_authentication=True
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return credentials of a client with the latest contents."""
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
        # The reason is reported when the file is read.
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
