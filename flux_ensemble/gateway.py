"""The former name of `flux_ensemble.k8s.grpc`, from which programs import the client."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

from flux_ensemble.renamed import deprecated

_NEW = "flux_ensemble.k8s.grpc"

warnings.warn(deprecated(__name__, _NEW), DeprecationWarning, stacklevel=2)
for _name in ("client", "tls"):
    sys.modules[f"{__name__}.{_name}"] = import_module(f"{_NEW}.{_name}")
