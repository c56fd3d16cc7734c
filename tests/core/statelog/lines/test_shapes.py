"""The shortcut by shapes says what the grammar says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.statelog.lines.selection import Selection
from kafkatool.core.statelog.lines.shapes import (
    LONGEST_SHAPE,
    MOST_SHAPES,
    ONE_DIGIT,
    Shapes,
    classify,
    classify_like_kafka,
)
from tests.core.statelog.logs import all_lines


@pytest.mark.spec("SCL-5", "SCL-12X")
@pytest.mark.parametrize("rule", [classify, classify_like_kafka])
def test_a_real_line_and_its_shape_are_classified_alike(rule: object) -> None:
    assert callable(rule)
    for line in {line.translate({ord(d): "7" for d in "89"}) for line in all_lines()}:
        assert rule(line) == rule(line.encode("latin-1").translate(ONE_DIGIT).decode("latin-1"))


@given(st.text(alphabet="[]0123456789-,: partion{}=.(%'", max_size=80))
def test_any_line_and_its_shape_are_classified_alike(rest: str) -> None:
    for line in (rest, f"[2016-01-01 10:00:00,123] TRACE [Broker id=1] Handling partition t-{rest}"):
        shape = line.encode().translate(ONE_DIGIT).decode()
        assert classify(line) == classify(shape)
        assert classify_like_kafka(line) == classify_like_kafka(shape)


@pytest.mark.spec("SCL-4")
def test_carriage_return_is_dropped_for_matching() -> None:
    line = b"[2016-01-01 10:00:00,123] INFO [Broker id=1] Handling stop replica (delete=true) for partition t-1\r"
    shape = Selection().shapes().of(line)
    assert (shape.known, shape.level, shape.event) == (True, "INFO", "stop_replica_started")


@pytest.mark.spec("SCL-12X")
@pytest.mark.parametrize(
    ("line", "known", "is_record"),
    [
        ("[2016-01-01 10:00:00.123] TRACE dot instead of comma", False, False),
        ("2016-01-01 no time at all", False, False),
        ("[2016-01-01 10:00:00,123] [thread] TRACE Broker 1 x", False, True),
        ("[2016-01-01 10:00:00,123] TRACE Broker 1 says what Kafka never says (state.change.logger)", False, True),
        ("\tat kafka.Foo(Foo.scala:12) 2016-01-01 10:00:00,123", True, False),
        ("", True, False),
    ],
)
def test_dated_lines_of_unknown_form(line: str, known: bool, is_record: bool) -> None:
    shape = classify(line)
    assert (shape.known, shape.time_at is not None) == (known, is_record)


@pytest.mark.spec("SCL-13X")
def test_like_kafka_a_time_anywhere_makes_a_record_and_an_isr_of_two_a_partition() -> None:
    shape = classify_like_kafka("\tat x isr=[1, 2] 2026-11-21 09:30:00,000 for partition [t,7]")
    assert shape.time_at == 17
    (span,) = shape.spans
    assert tuple(span.read("\tat x isr=[1, 2]")) == ("1", 2)


def test_memory_of_shapes_is_bounded() -> None:
    shapes = Shapes(classify, {})
    for number in range(MOST_SHAPES + 10):
        shapes.of(b"x" * (number % 200) + b"%c" % (65 + number // 200 % 26) + b"y" * (number // 5200))
    assert len(shapes.known) <= MOST_SHAPES
    shapes.of(b"z" * (LONGEST_SHAPE + 1))
    assert b"z" * (LONGEST_SHAPE + 1) not in shapes.known
