"""A client of the Kubernetes API, and one sentence for any error in making it.

The configuration is that of the pod's service account, or the current context of the file that
KUBECONFIG names. For a wrong configuration (a missing key, unreadable YAML, a value of another
type), lightkube raises whatever its parts raise, so every exception is caught here.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import httpx2
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import BasicRequest, GenericSyncClient

#: Longest wait for a response of the API server, in seconds.
_PATIENCE_SECONDS = 5.0

#: Exceptions of a request whose credentials cannot be had: the program that provides them fails, is
#: missing, or prints something else; or a token's file is gone.
CREDENTIAL_ERRORS = (ConfigError, OSError, ValueError, KeyError, TypeError)

#: API group of programs that provide credentials. lightkube refuses v1, although the part of it
#: that lightkube reads has the same form as v1beta1.
_EXEC = "client.authentication.k8s.io"


#: One thread at a time reads responses: msgspec, which lightkube reads them with, crashes where two
#: threads meet a type that neither has read before.
_READING = threading.RLock()


class ClusterError(Exception):
    """An error: no cluster can be connected to; the text is one sentence."""


class _Requests(GenericSyncClient):
    """lightkube's requests, with one kind of exception for anything but a proper response.

    A proxy in front of an API server responds with web pages, empty texts or truncated responses.
    For these, and for credentials that cannot be read, lightkube raises whatever its parser raises.
    """

    @staticmethod
    def raise_for_status(resp: httpx2.Response) -> None:
        try:
            with _READING:
                GenericSyncClient.raise_for_status(resp)
        except httpx2.HTTPError:
            raise
        except Exception as exc:
            raise httpx2.HTTPStatusError(
                f"HTTP status {resp.status_code} with {_content(resp)}, which is not of an API "
                "server",
                request=resp.request,
                response=resp,
            ) from exc

    def handle_response(self, method: str, resp: httpx2.Response, br: BasicRequest) -> Any:
        try:
            with _READING:
                return super().handle_response(method, resp, br)
        except httpx2.HTTPError:
            raise
        except Exception as exc:
            raise httpx2.DecodingError(
                f"HTTP status {resp.status_code} with {_content(resp)}, which cannot be read: "
                f"{' '.join(str(exc).split())}",
                request=resp.request,
            ) from exc


def _content(resp: httpx2.Response) -> str:
    kind = resp.headers.get("Content-Type", "no content type")
    return f"{len(resp.content)} bytes of {kind}"


def sturdy(client: Client) -> Client:
    """Return a client that raises `httpx2.HTTPError` for anything that an API server can send.

    Args:
        client: is changed, and returned.
    """
    client._client.__class__ = _Requests
    return client


def connect(config: KubeConfig | None = None, *, field_manager: str | None = None) -> Client:
    """Return a client of the cluster.

    Args:
        config: default: the pod's service account, or KUBECONFIG.
        field_manager: the owner of the fields that the client writes.

    Raises:
        ClusterError: there is no configuration, or it cannot be used.
    """
    # Otherwise each request is a line of the log.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        single = (config or KubeConfig.from_env()).get()
        assert single is not None
        plugin = single.user.exec if single.user is not None else None
        if plugin is not None and plugin.apiVersion == f"{_EXEC}/v1":
            plugin.apiVersion = f"{_EXEC}/v1beta1"
        timeout = httpx2.Timeout(_PATIENCE_SECONDS)
        return sturdy(Client(config=single, timeout=timeout, field_manager=field_manager))
    except Exception as exc:
        what = " ".join(str(exc).split())[:300]
        if isinstance(exc, KeyError):
            what = f"{what} is missing"
        raise ClusterError(
            f"there is no Kubernetes cluster to talk to ({what or type(exc).__name__}): run this "
            "in a pod with a service account, or set KUBECONFIG"
        ) from exc
