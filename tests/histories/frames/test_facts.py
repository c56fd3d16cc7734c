"""By which requests the facts of a run are asked, as frames show it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.histories.clients import facts
from tests.histories.clients.values import PARTITIONS, encode, partition_of, topic_of
from tests.histories.frames.record import Record, read_frames
from tests.histories.frames.stage import Stage, stage_with_a_key
from tests.histories.upkeep import delete_below

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_KEY, _GROUP = 0, "asked"
_VALUES = [encode(value, _KEY, 0) for value in range(5)]
_LOOKING_UP = frozenset({"ApiVersions", "Metadata", "FindCoordinator"})
_QUESTIONS: dict[str, Callable[[str], object]] = {
    "ListOffsets": lambda bootstrap: facts.ask_ends(bootstrap, [_KEY]),
    "OffsetFetch": lambda bootstrap: facts.ask_committed(bootstrap, _GROUP, [_KEY]),
    "Fetch": lambda bootstrap: facts.read_batches(bootstrap, [_KEY], {_KEY: (0, len(_VALUES))}),
    "DeleteRecords": lambda bootstrap: delete_below(bootstrap, {_KEY: 3}),
}


@pytest.mark.spec("HIS-12", "HIS-43")
def test_each_fact_is_asked_by_its_api_through_connections_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_TIMEOUT_S", 120.0)
    before: set[tuple[int, int]] = set()  # broker and port of who has asked a question
    with stage_with_a_key(
        *("ours", tmp_path, topic_of(_KEY), _VALUES), partitions=PARTITIONS, partition=partition_of(_KEY)
    ) as stage:
        for api, ask in _QUESTIONS.items():
            asked = _frames(stage, tmp_path / api, ask)
            assert {kind for kind, _ in asked} == {api}
            through = {connection for _, connection in asked}
            assert not through & before
            before |= through


def _frames(stage: Stage, file: Path, ask: Callable[[str], object]) -> set[tuple[str, tuple[int, int]]]:
    """Return what clients asked meanwhile but to find their way, and through which connections; brokers ask as well."""
    former, record = stage.doors.record, Record(file)
    stage.doors.record = record
    try:
        assert ask(stage.bootstrap)
    finally:
        stage.doors.record = former
        record.close()
    return {
        (line["api"], (line["broker"], line["ends"][0]))
        for line in read_frames(file)
        if line["what"] == "asked" and line["client"] in ("rdkafka", "batches") and line["api"] not in _LOOKING_UP
    }
