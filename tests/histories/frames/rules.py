"""What is done to which frame: written by a test, or drawn from a seed. Only what TCP allows.

Within a connection order holds and nothing is repeated: what is late, or comes twice, does so over another connection.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from tests.histories.frames.frame import Asked, Fields

Moment = Literal["before", "delivered", "answered"]
MOMENTS: Final[tuple[Moment, ...]] = get_args(Moment)
_LONGEST_S: Final = 2.0
NEVER_LATE: Final = frozenset({"EndTxn", "OffsetCommit", "TxnOffsetCommit"})
"""What a later request of the same producer or member cannot be told from, on Kafka neither (docs/known-faults.md): a commit
that comes after its repeat ends the next transaction, or takes the group's offsets back."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the request, and what comes behind it, for so long; None: until it is released."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Late:
    """Keep the request, end the client's side at once, deliver after so long all the same; None: when it is released.

    ``silent``: the client's side stays, and hears nothing until the client gives it up.
    """

    seconds: float | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Lose:
    """Deliver the request; when its answer comes, end the connection instead of passing it on."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call, with the broker's number: before the request is delivered, or when it is, or when the client has the answer.

    An answer to a request that was just ``delivered`` is lost, with the connection, once the call is over.
    """

    moment: Moment
    what: Callable[[int], object]


Act = Hold | Late | Lose | Call


@dataclass(frozen=True, slots=True)
class Rule:
    """Meets the ``nth`` request of an API by a client since it is at work; None: by any.

    ``body``: of those alone that say so, as ``frame`` reads them.
    """

    api: str
    act: Act
    nth: int = 1
    client: str | None = None
    body: Fields = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.act} at {self.api} {self.nth} of {self.client or 'anybody'}"

    def is_about(self, asked: Asked) -> bool:
        """Tell whether a request is one of its kind."""
        if asked.api != self.api or self.client not in (None, asked.client):
            return False
        return self.body.items() <= asked.body.items()


class Armed:
    """A rule at work. ``done``: all of it has been done; a late request has been answered, too, or its connection closed."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.met = threading.Event()
        self.released = threading.Event()
        self.done = threading.Event()
        self.error: BaseException | None = None  # of the call
        self._left = rule.nth

    def counts(self, asked: Asked) -> bool:
        """Count a request; tell whether it is the one."""
        if self.met.is_set() or not self.rule.is_about(asked):
            return False
        self._left -= 1
        return self._left == 0

    def call(self, what: Callable[[int], object], broker: int) -> None:
        """Call, unless the rule has been cleared meanwhile, and keep what that raises."""
        if not self.released.is_set():
            try:
                what(broker)
            except BaseException as e:  # noqa: BLE001  # it is the test's, which looks here
                self.error = e
        self.done.set()


class Rules:
    """The rules at work for all doors of a cluster. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Armed] = []

    def add(self, rule: Rule) -> Armed:
        with self._lock:
            self._armed.append(armed := Armed(rule))
        return armed

    @property
    def spent(self) -> bool:
        """Whether no request can meet a rule any more."""
        with self._lock:
            return all(armed.met.is_set() for armed in self._armed)

    def meet(self, asked: Asked) -> Armed | None:
        """Count a request; return the rule that it meets. Of several the first is done."""
        with self._lock:
            found = [armed for armed in self._armed if armed.counts(asked)]
            for armed in found:
                armed.met.set()
        return found[0] if found else None

    def clear(self) -> None:
        """End all of them; what they hold is delivered."""
        with self._lock:
            ended, self._armed = self._armed, []
        for armed in ended:
            armed.released.set()


def draw(
    chance: random.Random, seen: Mapping[tuple[str, str], int], calls: Sequence[Callable[[int], object]] = ()
) -> Rule:
    """Draw a rule for requests as they were ``seen``: how many of each API by each client.

    ``calls`` are among what is done, at any of the moments.
    """
    api, client = chance.choice(sorted(seen))
    seconds = chance.uniform(0, _LONGEST_S)
    acts: list[Act] = [Hold(seconds), Lose()]
    if api not in NEVER_LATE:
        acts.append(Late(seconds))
    if calls:
        acts.append(Call(chance.choice(MOMENTS), chance.choice(calls)))
    return Rule(api, chance.choice(acts), chance.randint(1, seen[api, client]), client or None)
