"""The asyncio twin of an object whose methods wait: each is called on a thread, and awaited."""

import asyncio
from typing import Any


class InThread:
    """``target`` for a coroutine: what is a method there is awaited here, everything else is as it is.

    >>> await InThread(cluster).kill_broker(2)
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name == "faults":
            return InThread(value)
        if not callable(value):
            return value

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(value, *arguments, **named)

        return call

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the target itself, where it is a function."""
        return await asyncio.to_thread(self._target, *arguments, **named)
