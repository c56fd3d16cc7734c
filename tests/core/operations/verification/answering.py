"""Connections that are none: what is asked over them, a function answers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from kafkatool.core.client.access import PLAINTEXT_ACCESS
from kafkatool.core.client.connections import Connections


def answering(send: Callable[..., Any]) -> Connections:
    """Return them; every broker speaks every version."""
    one = SimpleNamespace(send=send, version_of=lambda api, **_: api.max_version)
    return cast(Connections, SimpleNamespace(to=lambda *_, **__: one, access=PLAINTEXT_ACCESS))
