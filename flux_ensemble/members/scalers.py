"""Makes the scaler that is configured."""

from __future__ import annotations

from flux_ensemble.members.elastic import ElasticInstance
from flux_ensemble.members.flux import FluxQueue
from flux_ensemble.members.minicluster import MiniClusterScaler, connect
from flux_ensemble.members.scaler import InstanceScaler
from flux_ensemble.members.scaler_settings import ScalerSettings


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
