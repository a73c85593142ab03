"""Makes the configured scaler."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from flux_ensemble.queues.elastic.provisioner import Provisioner
from flux_ensemble.queues.elastic.scaler import START_SECONDS, ElasticInstance
from flux_ensemble.queues.elastic.settings import ScalerSettings
from flux_ensemble.queues.elastic.site_command import SiteCommand
from flux_ensemble.queues.flux.broker import Broker

#: Kinds of scalers that need more than Flux, each with the module that makes its provisioner, which
#: is imported where one is configured.
OTHERS = {"minicluster": "flux_ensemble.k8s.scaler"}


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
    other = import_other(settings.kind)
    provisioner: Provisioner = other.make_provisioner(broker, texts, start_seconds)
    return provisioner


def import_other(kind: str) -> ModuleType:
    """Import the module of a kind of scalers.

    Raises:
        ValueError: it is not installed; a sentence.
    """
    try:
        return import_module(OTHERS[kind])
    except ImportError as error:
        raise ValueError(
            f"scaler: {kind!r} needs the extra 'grpc' of flux-ensemble ({error})"
        ) from None
