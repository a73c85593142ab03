"""Makes the configured scaler."""

from __future__ import annotations

from flux_ensemble.queues.elastic.minicluster import MiniCluster, connect
from flux_ensemble.queues.elastic.provisioner import Provisioner
from flux_ensemble.queues.elastic.scaler import START_SECONDS, ElasticInstance
from flux_ensemble.queues.elastic.settings import ScalerSettings
from flux_ensemble.queues.elastic.site_command import SiteCommand
from flux_ensemble.queues.flux.broker import Broker


def make_scaler(broker: Broker, settings: ScalerSettings) -> ElasticInstance:
    """Make a scaler with the provisioner of its kind.

    Args:
        broker: of the instance.
        settings: of the scaler.

    Raises:
        ValueError: the instance does not suit this kind of scaler, or a setting is wrong; the
            text is a sentence.
    """
    provisioner = _make_provisioner(broker, settings)
    try:
        return ElasticInstance(broker, provisioner, **settings.options)
    except ValueError:
        provisioner.close()
        raise


def _make_provisioner(broker: Broker, settings: ScalerSettings) -> Provisioner:
    texts = settings.texts
    start_seconds = settings.options.get("start_seconds", START_SECONDS)
    if settings.kind == "instance":
        return SiteCommand(broker, texts["start-broker"], start_seconds=start_seconds)
    client = connect(
        texts["grpc-target"],
        texts.get("grpc-cluster", ""),
        cert=texts.get("tls-cert", ""),
        key=texts.get("tls-key", ""),
        ca=texts.get("tls-ca", ""),
    )
    return MiniCluster(broker, client, start_seconds=start_seconds)
