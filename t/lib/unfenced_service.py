"""`flux ensemble serve`, which fences no member that is lost: `unfenced_service.py`."""

from __future__ import annotations

from flux_ensemble.bindings import require_flux

require_flux()

import flux  # noqa: E402

from flux_ensemble.queues.nested.member_job import MemberJob  # noqa: E402
from flux_ensemble.service.serve import serve  # noqa: E402


def fence(self: MemberJob, job: int | str) -> None:
    """Do not cancel it."""


MemberJob._fence = fence  # type: ignore[method-assign]
serve(flux.Flux())
