"""Which requests a fault meets and what becomes of them: values, as the test makes them and the broker gets them."""

import dataclasses
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from kafkatool.core.protocol.codec.schema import Array, Struct, fields_of

Action = Literal["error", "late", "never", "close"]
_TOPIC_FIELDS = ("topic", "name", "resource_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One fault of answers. None is no condition; a request must meet all of them.

    Of those that do, the first ``skip`` are served as ever, then ``times`` meet the fault (None: all). They are counted
    over all brokers, in the file ``counter``.
    """

    action: Action
    counter: str
    apis: tuple[int, ...] | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    senders: tuple[int, ...] | None = None
    """Brokers, known by the client ids of their requests."""
    followers: bool = False
    """Whether the fetches of followers are met too."""
    skip: int = 0
    times: int | None = None
    error: int = 0
    delay_ms: int = 0
    carried_out: bool = False
    """Whether the request takes effect all the same: only its answer is not what it should be."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Make it of the decoded text: lists are tuples again."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return cls(**values)

    def concerns(self, client_id: str | None, request: Any) -> bool:
        """Tell whether the request's sender meets the conditions; what it is about is told by ``split``."""
        if self.client_id is not None and client_id != self.client_id:
            return False
        if self.senders is not None:
            return any(client_id == str(b) or (client_id or "").startswith(f"broker-{b}-") for b in self.senders)
        return self.followers or getattr(request, "replica_id", -1) < 0

    def split(self, request: Any) -> tuple[Any, Any] | None:
        """Return the part of the request that meets topic and partition, and the rest (None: there is none).

        None when it has nothing that does.
        """
        if self.topic is None:
            return request, None
        for field in fields_of(type(request)):
            named = getattr(request, field.name)
            if not isinstance(field.type, Array) or not named:
                continue
            pieces = [self._split_item(item) for item in named]
            if met := [piece for piece, _ in pieces if piece is not None]:
                rest = [other for _, other in pieces if other is not None]
                return dataclasses.replace(request, **{field.name: met}), (
                    dataclasses.replace(request, **{field.name: rest}) if rest else None
                )
        return None

    def _split_item(self, item: Any) -> tuple[Any, Any]:
        """Split one element of a list: a name, a partition, or a topic with its partitions."""
        topic = (
            item if isinstance(item, str) else next((getattr(item, f) for f in _TOPIC_FIELDS if hasattr(item, f)), None)
        )
        if topic != self.topic:
            return None, item
        if self.partition is None or isinstance(item, str):
            return item, None
        if not isinstance(numbers := getattr(item, "partitions", None), list):
            return (item, None) if getattr(item, "partition", self.partition) == self.partition else (None, item)
        met = [n for n in numbers if getattr(n, "partition", n) == self.partition]
        rest = [n for n in numbers if n not in met]
        return (dataclasses.replace(item, partitions=met) if met else None), (
            dataclasses.replace(item, partitions=rest) if rest else None
        )


def names_topics(request: type[object]) -> bool:
    """Tell whether requests of that class say what topics they are about."""
    lists = [f for f in fields_of(request) if isinstance(f.type, Array)]
    return any(
        f.name == "topic_names"
        or (isinstance(f.type.element, Struct) and any(g.name in _TOPIC_FIELDS for g in fields_of(f.type.element.type)))
        for f in lists
        if isinstance(f.type, Array)
    )


def says(reply: Any, error: int) -> bool:
    """Tell whether the reply, or a part of it, has the error."""
    if isinstance(reply, Sequence):
        return not isinstance(reply, str | bytes) and any(says(part, error) for part in reply)
    if not dataclasses.is_dataclass(reply):
        return False
    names = [f.name for f in dataclasses.fields(reply)]
    return any(
        getattr(reply, name) == error if name == "error_code" else says(getattr(reply, name), error) for name in names
    )


class Counter:
    """Counts over all brokers: each appends a byte to one file, and finds its place in it."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._lock = threading.Lock()

    def next(self) -> int:
        """Count one more; return how many there were before."""
        with self._lock:  # the place is the descriptor's, which all threads share
            os.write(self._fd, b".")
            return os.lseek(self._fd, 0, os.SEEK_CUR) - 1

    def __del__(self) -> None:
        os.close(self._fd)  # when no request can be counted any more
