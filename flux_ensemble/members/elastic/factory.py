"""Makes the scaler that is configured."""

from __future__ import annotations

from flux_ensemble.members.elastic.minicluster import MiniClusterScaler, connect
from flux_ensemble.members.elastic.scaler import ElasticInstance
from flux_ensemble.members.elastic.settings import ScalerSettings
from flux_ensemble.members.elastic.site_command import InstanceScaler
from flux_ensemble.members.flux.queue import FluxQueue


def make_scaler(queue: FluxQueue, settings: ScalerSettings) -> ElasticInstance:
    """Make a scaler.

    Args:
        queue: the queue of the instance.
        settings: of the scaler.

    Raises:
        ValueError: the instance is not one for it, or something is wrong; a sentence.
    """
    texts = settings.texts
    if settings.kind == "instance":
        return InstanceScaler(queue, texts["start-broker"], **settings.options)
    client = connect(
        texts["grpc-target"],
        texts.get("grpc-member", ""),
        cert=texts.get("tls-cert", ""),
        key=texts.get("tls-key", ""),
        ca=texts.get("tls-ca", ""),
    )
    try:
        return MiniClusterScaler(queue, client, **settings.options)
    except ValueError:
        client.close()
        raise
