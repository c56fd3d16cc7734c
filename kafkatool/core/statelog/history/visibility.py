"""What can be in the logs at all, decided from their lines, by broker and by the hour (SCL-26X). Pure functions.

A fact is hidden where the level or the mode (with or without ZooKeeper) keeps it out of the logs. A cluster that moved
from one mode to the other, or whose level was changed, has hours of both.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from kafkatool.core.model.values import in_number
from kafkatool.core.statelog.lines.forms import KRAFT, ZOOKEEPER
from kafkatool.core.statelog.lines.shapes import Shape

HIDDEN_ISR: Final = "ISR changes that leaders make themselves (no line passes them on; level TRACE is needed)"
HIDDEN_OFFLINE: Final = "partitions going offline, and being deleted (told at TRACE only, INFO is the default from 2.6)"
HIDDEN_WITHOUT_REPLICAS: Final = "partitions without leader while no broker that has a replica of them was alive"
HIDDEN_CONTROLLERS: Final = (
    "controllers and their changes, failed elections, why leaders were elected, which topics were deleted (without "
    "ZooKeeper no broker logs them)"
)

HOUR_LENGTH: Final = 13
"""Characters of ``yyyy-MM-dd HH``."""

_BESIDE_TRACE: Final = frozenset({"partition_online", "leader_started", "follower_started"})
"""At INFO; where the level is TRACE, lines of that level are within a second of them. Source: logs of 2.8.2 and 3.9.1."""

BrokerHours = set[tuple[int, str]]


@dataclass(slots=True)
class Hours:
    """Broker and hour of the lines it wrote, by what such lines tell of its level and mode.

    ``traced``: at TRACE, with ZooKeeper; ``told``: at INFO what such lines are beside where that is the level.
    """

    traced: BrokerHours = field(default_factory=set)
    told: BrokerHours = field(default_factory=set)
    zookeeper: BrokerHours = field(default_factory=set)
    kraft: BrokerHours = field(default_factory=set)

    def note(self, shape: Shape, seen: BrokerHours) -> None:
        """Take the hours in which brokers wrote lines of a shape."""
        if shape.level == "TRACE" and shape.mode == ZOOKEEPER:
            self.traced |= seen
        elif shape.level == "INFO" and shape.event in _BESIDE_TRACE:
            self.told |= seen
        if shape.mode == ZOOKEEPER:
            self.zookeeper |= seen
        elif shape.mode == KRAFT:
            self.kraft |= seen

    def add(self, other: "Hours") -> None:
        """Add those of another part."""
        for each in fields(self):
            mine: BrokerHours = getattr(self, each.name)
            mine |= getattr(other, each.name)


@dataclass(frozen=True, slots=True)
class Visibility:
    """What these logs can show. ``modes``: first and last hour of each, by mode; ``hidden``: what they cannot, in words.

    Where ``leader_isr``, ``offline`` or ``controllers`` is False, the counts of such changes are lower bounds.
    """

    modes: dict[str, tuple[str, str]]
    leader_isr: bool
    offline: bool
    controllers: bool
    hidden: tuple[str, ...]


def visibility_of(hours: Hours, *, isr_passed_on: bool) -> Visibility:
    """Return what logs with such hours show. ``isr_passed_on``: lines are there that tell leaders' own ISR changes."""
    modes = {
        mode: (f"{min(of_it)[:HOUR_LENGTH]}:00", f"{max(of_it)[:HOUR_LENGTH]}:59")
        for mode, of_it in ((ZOOKEEPER, _hours(hours.zookeeper)), (KRAFT, _hours(hours.kraft)))
        if of_it
    }
    kraft, zookeeper = KRAFT in modes, ZOOKEEPER in modes or not modes
    traced, told = hours.traced, hours.told - hours.kraft
    untraced = _hours(told) - _hours(traced)
    when = f", {_period(untraced)}" if traced and untraced else ""
    offline_hidden = zookeeper and bool(when or not traced)
    isr_hidden = zookeeper and (bool(when) or not isr_passed_on)
    hidden = [f"{HIDDEN_ISR}{when}"] * isr_hidden + [f"{HIDDEN_OFFLINE}{when}"] * offline_hidden
    hidden += _of_some(traced, {(broker, hour) for broker, hour in told if hour not in untraced})
    hidden += [HIDDEN_WITHOUT_REPLICAS, HIDDEN_CONTROLLERS] * kraft
    return Visibility(modes, not isr_hidden, not (offline_hidden or kraft), not kraft, tuple(hidden))


def _of_some(traced: BrokerHours, told: BrokerHours) -> Iterator[str]:
    """Yield what is hidden where some brokers logged at INFO while others did at TRACE."""
    if at_info := sorted({broker for broker, _ in told - traced}):
        one = len(at_info) == 1
        brokers = f"broker{'' if one else 's'} {', '.join(map(str, at_info))}"
        yield f"what {brokers} alone would tell at TRACE ({'its' if one else 'their'} logs are of INFO then)"


def _hours(found: BrokerHours) -> set[str]:
    return {hour for _, hour in found}


def _period(hours: set[str]) -> str:
    return f"in {in_number(len(hours), 'hour', 'hours')} from {min(hours)}:00 to {max(hours)}:59"
