"""The grammar of one line of a state-change.log: time, writer, message, and the partitions it names.

Pure functions over text; the expressions are those of the specification (state-change-log, section 6). Every line is
tried against every form, never by file or by version: files of Kafka 0.9 to 0.11 mix ``[t,p]`` and ``t-p``. A bare
``topic-digits`` is never searched for, since hosts, racks and dates look the same: partitions are found by the word
before them or by the payload's keys.

Text is bytes decoded as latin-1 (one character a byte, so positions hold and any encoding passes through).
"""

import re
from typing import NamedTuple

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.statelog.lines.forms import TOPIC, Form, find_form

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
TIME_LENGTH = 23
"""Characters of ``yyyy-MM-dd HH:mm:ss,SSS``."""

LOGGER = "state.change.logger"

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Log levels, least severe first."""

_RECORD_START = re.compile(rf"\[?({TIME})", re.ASCII)
_HEAD = re.compile(
    rf"\[?{TIME}\]?\s+(?P<level>{'|'.join(LEVELS)})\s+(?P<msg>.*?)(?:\s+\((?P<logger>[A-Za-z0-9_.$]+)\))?\s*",
    re.ASCII | re.DOTALL,
)
_ACTOR_NEW = re.compile(
    r"\[(?P<kind>Controller|Broker) id=(?P<id>\d{1,10})(?: epoch=(?P<epoch>\d{1,10}))?\] ", re.ASCII
)
_ACTOR_OLD = re.compile(r"(?P<kind>Controller|Broker) (?P<id>\d{1,10})(?: epoch (?P<epoch>\d{1,10}))? ", re.ASCII)
_NO_ACTOR = re.compile(r"Adding brokers .*, removing brokers .*\.", re.ASCII | re.DOTALL)
_ERROR_ON_BROKER = re.compile(r"Error on broker (?P<id>\d{1,10}) ", re.ASCII)

_PARTITION = re.compile(
    rf"\b[Pp]artition (?:being reassigned )?(?:\[({TOPIC}), ?(\d+)\]|({TOPIC})-(\d+))(?=$|[\s,.:;'])", re.ASCII
)
_BARE = re.compile(  # forms that name a partition without the word
    rf"(?:Leader|Follower|Skipped the become-(?:leader|follower) state change for|Updating (?:log|PartitionFetchState) for|"
    rf"Unable to (?:bring up new local (?:leader|follower)|delete (?:stray )?replica|start fetching)) ({TOPIC})-(\d+)"
    r"(?= (?:starts at|with|to|because) )",
    re.ASCII,
)
_MARK = re.compile(r"(?:Mark replicas|Found) (\S+) on broker \d+ as offline$", re.ASCII)
_MARKED = re.compile(rf"({TOPIC})-(\d+)(?:,|$)", re.ASCII)
_KEYED = (
    re.compile(rf"topicName='({TOPIC})', partitionIndex=(\d+)", re.ASCII),
    re.compile(rf"\{{topic(?:_name)?=({TOPIC}),partition(?:_index)?=(\d+),", re.ASCII),
)
_RESPONSES = re.compile(r"responses=\{(.*?)\}", re.ASCII | re.DOTALL)
_RESPONSE = re.compile(rf"({TOPIC})-(\d+)=\w+(?:, |$)", re.ASCII)


class Span(NamedTuple):
    """The place in a text where a partition is named: the topic's characters and the partition number's."""

    topic_start: int
    topic_end: int
    partition_start: int
    partition_end: int

    def read(self, text: str) -> TopicPartition:
        """Return the partition named there in ``text``."""
        number = int(text[self.partition_start : self.partition_end])
        return TopicPartition(text[self.topic_start : self.topic_end], number)


class Actor(NamedTuple):
    """The writer of a line. ``kind`` is "controller" or "broker"; ``epoch`` the controller epoch, where it is said.

    ``id`` is None in the one form that does not say who writes.
    """

    kind: str
    id: int | None
    epoch: int | None


class Head(NamedTuple):
    """A dated line taken apart. ``body`` is the message without its actor; it starts at ``body_start`` of the line.

    ``logger`` is the name that the line ends with, in parentheses.
    """

    level: str
    actor: Actor | None
    body: str
    body_start: int
    logger: str | None = None

    @property
    def form(self) -> Form | None:
        """Return the form of the message; None if it is not one of Kafka's known ones, or has no actor."""
        return find_form(self.body) if self.actor else None

    @property
    def is_foreign(self) -> bool:
        """Tell if another of the broker's loggers wrote it. A word without a dot is no name of one."""
        return self.logger is not None and "." in self.logger and self.logger != LOGGER


def record_time(line: str) -> str | None:
    """Return the time at the line's beginning (after an optional ``[``), which makes it a record's first line (SCL-4)."""
    found = _RECORD_START.match(line)
    return found[1] if found else None


def parse_head(line: str) -> Head | None:
    """Return the parts of a record's first line, or None if the layout is not log4j's ``[%d] %p %m (%c)``."""
    head = _HEAD.fullmatch(line)
    if not head:
        return None
    message, start = head["msg"], head.start("msg")
    actor: Actor | None = None
    position = 0
    for pattern in (_ACTOR_NEW, _ACTOR_OLD, _ERROR_ON_BROKER):  # some controller lines name their actor twice
        if found := pattern.match(message, position):
            position = found.end()
            named = found.groupdict()
            epoch = named.get("epoch")
            kind = named.get("kind", "broker").lower()
            known_epoch = actor.epoch if actor else None
            actor = Actor(kind, int(found["id"]), int(epoch) if epoch else known_epoch)
    if actor is None and _NO_ACTOR.fullmatch(message):
        actor = Actor("controller", None, None)
    return Head(head["level"], actor, message[position:], start + position, head["logger"])


def partition_spans(body: str) -> tuple[Span, ...]:
    """Return the places where the body names partitions, in the body's order; empty if it names none (SCL-5)."""
    if found := _PARTITION.search(body):
        group = 1 if found[1] is not None else 3
        return (Span(*found.span(group), *found.span(group + 1)),)
    if found := _BARE.match(body):
        return (Span(*found.span(1), *found.span(2)),)
    if found := _MARK.match(body):
        return _spans(_MARKED, body, *found.span(1))
    keyed = [span for pattern in _KEYED for span in _spans(pattern, body, 0, len(body))]
    if responses := _RESPONSES.search(body):
        keyed.extend(_spans(_RESPONSE, body, *responses.span(1)))
    return tuple(keyed)


def _spans(pattern: re.Pattern[str], text: str, start: int, end: int) -> tuple[Span, ...]:
    return tuple(Span(*found.span(1), *found.span(2)) for found in pattern.finditer(text, start, end))
