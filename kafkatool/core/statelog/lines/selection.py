"""The selection of records by the filters of ``kt logs``, and the counts that account for every line."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

from kafkatool.core.statelog.lines.grammar import LEVELS
from kafkatool.core.statelog.lines.shapes import ONE_DIGIT, Shape, Shapes, classify, classify_like_kafka

EARLIEST = "0000-00-00 00:00:00,000"
LATEST = "9999-99-99 99:99:99,999"


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to keep. Times are texts ``yyyy-MM-dd HH:mm:ss,SSS``, both inclusive; they compare as text (SCL-4).

    ``level`` keeps that level and the more severe ones; ``topic_regex`` must match the whole name. ``with_context``
    keeps records that name no partition although a topic is asked for. ``kafka_compatible`` is the selection of Kafka's
    merger and excludes level, event, topic_regex and with_context (SCL-13X).
    """

    start_time: str = EARLIEST
    end_time: str = LATEST
    topic: str | None = None
    partitions: frozenset[int] = frozenset()
    topic_regex: str | None = None
    level: str | None = None
    events: frozenset[str] = frozenset()
    with_context: bool = False
    continuation: bool = True
    kafka_compatible: bool = False

    def shapes(self) -> Shapes:
        """Return an empty store of shapes with the classes this selection goes by."""
        return Shapes(classify_like_kafka if self.kafka_compatible else classify)

    def filter(self) -> Callable[[bytes, bytes, Shape], str | None] | None:
        """Return a function of a record's time, first line and shape that gives the reason to drop it, or None.

        The reason is the name of the count it belongs to. Where nothing can be dropped there is no function.
        """
        if not self.bounded and not self.by_shape:
            return None
        start, end = self.start_time.encode(), self.end_time.encode()
        verdict, topic = self.verdict(), self.topic_filter()

        def reason(time: bytes, line: bytes, shape: Shape) -> str | None:
            if not start <= time <= end:
                return "filtered_by_time"
            if dropped := verdict(shape):
                return dropped
            return "filtered_by_topic" if topic and shape.spans and not topic(line, shape) else None

        return reason

    @property
    def bounded(self) -> bool:
        """Tell if a record's time matters."""
        return (self.start_time, self.end_time) != (EARLIEST, LATEST)

    @property
    def by_shape(self) -> bool:
        """Tell if anything but a record's time matters."""
        unbounded = replace(self, start_time=EARLIEST, end_time=LATEST, continuation=True, with_context=False)
        return unbounded != Selection()

    def verdict(self) -> Callable[[Shape], str | None]:
        """Return a function of a shape that gives the reason to drop all lines of it, or None."""
        events = self.events
        levels = LEVELS[LEVELS.index(self.level) :] if self.level else ()  # none: all, also lines without one
        about_a_topic = self.topic is not None or self.topic_regex is not None
        drop_without_partition = self.kafka_compatible or (about_a_topic and not self.with_context)

        def reason(shape: Shape) -> str | None:
            if levels and shape.level not in levels:
                return "filtered_by_level"
            if events and shape.event not in events:
                return "filtered_by_event"
            return "dropped_without_partition" if drop_without_partition and not shape.spans else None

        return reason

    def topic_by_shape(self) -> Callable[[bytes, Shape], bool] | None:
        """Return a function that tells if lines of a shape (its key, its class) can name a topic asked for; None: all are.

        True may be wrong: a shape has lost its digits.
        """
        if self.topic_regex is not None:
            return lambda key, shape: True
        if self.topic is None:
            return None
        topic = os.fsencode(self.topic).translate(ONE_DIGIT)
        return lambda key, shape: any(key[span.topic_start : span.topic_end] == topic for span in shape.spans)

    def topic_filter(self) -> Callable[[bytes, Shape], bool] | None:
        """Return a function that tells if a record (first line, shape) names a partition asked for; None: all do (SCL-5)."""
        if self.topic_regex is not None:
            pattern = re.compile(os.fsencode(self.topic_regex))
            return lambda line, shape: any(pattern.fullmatch(line[s.topic_start : s.topic_end]) for s in shape.spans)
        if self.topic is None:
            return None
        topic = os.fsencode(self.topic)
        partitions = frozenset(str(partition).encode() for partition in self.partitions)

        def names(line: bytes, shape: Shape) -> bool:
            return any(
                line[span.topic_start : span.topic_end] == topic
                and (
                    not partitions
                    or (line[span.partition_start : span.partition_end].lstrip(b"0") or b"0") in partitions
                )
                for span in shape.spans
            )

        return names

    def partition_filter(self) -> Callable[[str, int], bool]:
        """Return a function that tells whether a partition (topic, number) is asked for."""
        if self.topic_regex is not None:
            pattern = re.compile(self.topic_regex)
            return lambda topic, _: pattern.fullmatch(topic) is not None
        if self.topic is None:
            return lambda topic, partition: True
        return lambda topic, partition: topic == self.topic and (not self.partitions or partition in self.partitions)


@dataclass(slots=True)
class Counts:
    """The account of lines: each is in exactly one of records, continuation_lines and orphan_lines (SCL-12X).

    Every record is in exactly one of written, the filtered_* and dropped_without_partition. Informative, across these:
    without_partition, unknown_form (dated lines, be they records or not), other_loggers (records that end with the name
    of another logger than state.change.logger) and out_of_order (records earlier than the one before them in their file).
    """

    records: int = 0
    continuation_lines: int = 0
    orphan_lines: int = 0
    written: int = 0
    lines_written: int = 0
    filtered_by_time: int = 0
    filtered_by_level: int = 0
    filtered_by_event: int = 0
    filtered_by_topic: int = 0
    without_partition: int = 0
    dropped_without_partition: int = 0
    unknown_form: int = 0
    other_loggers: int = 0
    out_of_order: int = 0

    @property
    def lines(self) -> int:
        """Return how many lines were read."""
        return self.records + self.continuation_lines + self.orphan_lines

    def drop(self, reason: str, number: int = 1) -> None:
        """Count records dropped for that reason."""
        setattr(self, reason, getattr(self, reason) + number)

    def add(self, other: Self) -> None:
        """Add the counts of another part of the input."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
