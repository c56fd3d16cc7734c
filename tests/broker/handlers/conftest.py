"""Requests that no handler may change."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from kafkatool.core.protocol.codec.schema import Array, Struct, fields_of
from tests.core.protocol.apis import APIS


def _classes(cls: type[object]) -> Iterator[type[object]]:
    yield cls
    for field in fields_of(cls):
        element = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(element, Struct):
            yield from _classes(element.type)


def _set_if_made(message: object, name: str, value: Any) -> None:
    """Set a field for the code that makes messages, which comes from no file."""
    frame = inspect.currentframe()
    assert frame and frame.f_back and frame.f_back.f_code.co_filename.startswith("<"), (
        f"{name} of {message} was changed"
    )
    object.__setattr__(message, name, value)


@pytest.fixture(autouse=True)
def frozen_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold every request to what it was when it came, as type checkers do."""
    for cls in {cls for api in APIS.values() for cls in _classes(api.request)}:
        if not issubclass(cls, tuple):
            monkeypatch.setattr(cls, "__setattr__", _set_if_made, raising=False)
