"""Instances that cannot be members, by what Flux prints of them; t/t7003-uri-members.t has one."""

from __future__ import annotations

import errno
import os

import pytest

from flux_ensemble.queues.nested.refusals import RefusedError, no_way


@pytest.mark.parametrize(
    "said",
    [
        "flux-proxy: local:///run/flux/local: Operation not permitted",
        "flux-proxy: local:///home/a user/local-0: Permission denied",
        "flux-proxy: ssh://host/run/flux/local: host: local:///run/flux/local: "
        "Operation not permitted",
    ],
)
def test_one_that_lets_only_its_owner_in_is_refused_for_good(said: str) -> None:
    error = no_way("local:///run/flux/local", said)
    assert isinstance(error, RefusedError)
    assert str(error) == (
        "local:///run/flux/local lets nobody in but its owner, which is not the user with id "
        f"{os.getuid()}, whose this service is: a member has to be of the same user"
    )


def test_one_that_runs_another_flux_is_refused_for_good() -> None:
    said = (
        "flux-proxy: fatal: proxy version 0.88.0 may not interoperate with broker version 0.79.0 "
        "(--force to connect anyway)"
    )
    error = no_way("ssh://host/run/flux/local", said)
    assert isinstance(error, RefusedError)
    assert str(error) == (
        "it runs Flux 0.79.0, and this service Flux 0.88.0: a member has to have the same minor "
        "version"
    )


@pytest.mark.parametrize(
    "said",
    [
        "flux-proxy: local:///run/flux/local: No such file or directory",
        # The keys of ssh, which may be there in a moment.
        "user@host: Permission denied (publickey).",
        "it says nothing",
    ],
)
def test_what_may_pass_is_tried_again(said: str) -> None:
    error = no_way("ssh://host/run/flux/local", said)
    assert not isinstance(error, RefusedError)
    assert error.errno == errno.EHOSTUNREACH
    assert error.strerror == f"flux proxy ssh://host/run/flux/local: {said}"
