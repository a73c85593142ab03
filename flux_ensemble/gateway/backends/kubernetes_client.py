"""A client of the Kubernetes API, and one sentence for whatever keeps it from being made.

The configuration is that of the pod's service account, or the current context of the file that
KUBECONFIG names. lightkube raises what its parts raise for a configuration that is wrong (a key
that is missing, YAML that cannot be read, a value of another type), so all of it is caught here.
"""

from __future__ import annotations

import logging
from typing import Any

import httpx2
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.generic_client import BasicRequest, GenericSyncClient

#: The longest wait for one answer of the API server, in seconds.
_PATIENCE_SECONDS = 5.0

#: What a request raises where its credentials cannot be had: a program that is to give them fails,
#: is not there, or prints something else; a token's file is gone.
CREDENTIAL_ERRORS = (ConfigError, OSError, ValueError, KeyError, TypeError)

#: The group of the API of programs that give credentials. lightkube refuses v1, which has for what
#: it reads of it the same form as v1beta1.
_EXEC = "client.authentication.k8s.io"


class ClusterError(Exception):
    """There is no cluster to talk to; the text is one sentence."""


class _Requests(GenericSyncClient):
    """lightkube's requests, with one kind of exception for whatever comes in place of an answer.

    What stands before an API server answers with pages, empty texts or halves of an answer.
    lightkube raises what its parser raises for these, as for credentials that cannot be read.
    """

    @staticmethod
    def raise_for_status(resp: httpx2.Response) -> None:
        try:
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
    """Return a client that raises `httpx2.HTTPError` for all that an API server can send.

    Args:
        client: is changed, and returned.
    """
    client._client.__class__ = _Requests
    return client


def connect(config: KubeConfig | None = None, *, field_manager: str | None = None) -> Client:
    """A client of the cluster.

    Args:
        config: default: the pod's service account, or KUBECONFIG.
        field_manager: whose the fields are that it writes.

    Raises:
        ClusterError: there is no configuration, or it cannot be used.
    """
    # Else each request is a line of the log.
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
