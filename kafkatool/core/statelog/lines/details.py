"""The place of each value in a line, found once for all lines of one shape (see ``shapes``): numbers are then slices.

A line is parsed by regular expressions only when its shape is new. That makes reading the epochs, leaders and in-sync
replicas of a million lines as cheap as classifying them.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from kafkatool.core.statelog.lines.forms import LEADERSHIP, TOPIC_ID
from kafkatool.core.statelog.lines.grammar import parse_head
from kafkatool.core.statelog.lines.shapes import Shape, classify

_ASSIGNED = r"(?:,ReplicationFactor:\d+\),AllReplicas:(?P<replicas>[\d,]*))?"  # Kafka 0.8's request goes on so
_PAYLOADS = tuple(re.compile(p + _ASSIGNED * (p is LEADERSHIP[0]), re.ASCII) for p in LEADERSHIP)
_REPLICAS = re.compile(
    r"(?:assigned replicas|assigned replica list|\(replicas=) ?(?P<replicas>\d+(?:,\d+)*)"
    r"(?:, addingReplicas=(?P<adding>[\d,]*), removingReplicas=(?P<removing>[\d,]*)\))?",
    re.ASCII,
)
_SENDER = re.compile(
    r"(?:from|by|from an old) controller (?P<sender>\d+)(?: with correlation id \d+)?(?: (?:with )?epoch (?P<epoch>\d+))?",
    re.ASCII,
)
_TOPIC_ID = re.compile(rf"\b(?:topic )?(?:id|ID) (?:Some\()?(?P<topic_id>{TOPIC_ID})(?![A-Za-z0-9_-])", re.ASCII)
_CORRELATION = re.compile(r"\bcorrelation ?[iI]d (?P<correlation_id>\d+)", re.ASCII)
_STATES = re.compile(r"\bfrom (?P<from>[A-Z]\w+) to (?P<to>[A-Z]\w+)", re.ASCII)
_TARGET = re.compile(r" to brokers? (?P<target>\d+|\w+\([\d, ]*\))", re.ASCII)
_REPLICA = re.compile(r"\breplica (?P<replica>\d+) ", re.ASCII)
_ACTOR_ID = re.compile(r"(?:\[(?:Controller|Broker) id=|(?:Controller|Broker|Error on broker) )(\d+)", re.ASCII)
_ACTOR_EPOCH = re.compile(r"\[Controller id=\d+ epoch=(\d+)\]|Controller \d+ epoch (\d+) ", re.ASCII)
_NUMBER = re.compile(rb"\d+")
_BROKER_ID = re.compile(rb"brokerId=(\d+)")
_RECOVERY_STATES = {b"0": "RECOVERED", b"1": "RECOVERING"}

LONGEST_UNKNOWN = 64 * 1024
"""Characters; taking a line of 10 MB apart costs a second."""


class Details(NamedTuple):
    """The values in lines of one shape: slices of the line, None for what is not said.

    ``actor`` is "controller" or "broker"; ``epoch`` the controller epoch of the writer, or of the request;
    ``state_epoch`` the one stored with the leadership. ``sender`` is the controller whose request a broker speaks of;
    ``target`` the brokers a controller sends to. State names hold no digits: they are the texts themselves.
    """

    shape: Shape
    actor: str | None = None
    actor_id: slice | None = None
    epoch: slice | None = None
    sender: slice | None = None
    leader: slice | None = None
    leader_epoch: slice | None = None
    isr: slice | None = None
    partition_epoch: slice | None = None
    state_epoch: slice | None = None
    replicas: slice | None = None
    correlation_id: slice | None = None
    target: slice | None = None
    replica: slice | None = None
    topic_id: slice | None = None
    recovery: slice | None = None
    adding: slice | None = None
    removing: slice | None = None
    from_state: str | None = None
    to_state: str | None = None


def number(line: bytes, at: slice | None) -> int | None:
    """Return the number that stands there."""
    return int(line[at]) if at is not None else None


def numbers(line: bytes, at: slice | None) -> tuple[int, ...] | None:
    """Return the list of numbers that stands there, as ``1,2`` or ``1, 2``."""
    return read_numbers(line[at]) if at is not None else None


def recovery_state(line: bytes, details: Details) -> str | None:
    """Return the leader recovery state that a line tells: RECOVERED, or RECOVERING after an unclean election."""
    return read_recovery_state(line[details.recovery]) if details.recovery is not None else None


@lru_cache(maxsize=10_000)
def read_numbers(text: bytes) -> tuple[int, ...]:
    """Return the numbers of a list, parsed once: a cluster has few lists of replicas, and its logs name them everywhere."""
    return tuple(map(int, (_BROKER_ID if text.startswith(b"B") else _NUMBER).findall(text)))


def read_recovery_state(text: bytes) -> str:
    """Return the leader recovery state of that name or number."""
    return _RECOVERY_STATES.get(text) or text.decode("latin-1")


def find_details(text: str) -> Details:
    """Return all of a line (or of its shape) at once. Of a very long line of unknown form only its class is looked for."""
    shape = classify(text)
    readable = shape.time_at is not None and (shape.known or len(text) <= LONGEST_UNKNOWN)
    head = parse_head(text) if readable and not shape.foreign else None
    if head is None:
        return Details(shape)
    start = head.body_start
    found: dict[str, slice] = {}

    def take(pattern: re.Pattern[str]) -> bool:
        match = pattern.search(head.body)
        if match is None:
            return False
        for name, value in match.groupdict().items():
            if value is not None:
                found.setdefault(name, slice(start + match.start(name), start + match.end(name)))
        return True

    any(take(pattern) for pattern in _PAYLOADS)
    for pattern in (_REPLICAS, _SENDER, _CORRELATION, _TARGET, _REPLICA, _TOPIC_ID):
        take(pattern)
    states = _STATES.search(head.body)
    actor_id = _ACTOR_ID.search(text, 0, start)
    if actor_epoch := _ACTOR_EPOCH.search(text, 0, start):
        group = 1 if actor_epoch[1] is not None else 2
        found["epoch"] = slice(*actor_epoch.span(group))
    return Details(
        shape,
        head.actor.kind if head.actor else None,
        slice(*actor_id.span(1)) if actor_id and head.actor else None,
        **{name: at for name, at in found.items() if name in Details._fields},
        from_state=states["from"] if states else None,
        to_state=states["to"] if states else None,
    )
