"""Stories through doors that know frames: as they are, with something at a request that the seed draws, with all of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import real_kafka
from tests.histories.clients.client import Cell
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.values import PARTITIONS, topic_of
from tests.histories.frames.record import Record
from tests.histories.frames.stage import Kafkas, Ours, Stage
from tests.histories.frames.stories import STORIES
from tests.histories.frames.sweep import MANNERS, Point, play, points, sweep, tell
from tests.waiting import eventually

KILLS = ("before", "delivered", "answered")
GROUPS = {"FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetFetch", "OffsetCommit", "LeaveGroup"}
TRANSACTIONS = {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
BOTH = {"ApiVersions", "Metadata", "Fetch", "Produce"}  # members begin by number, and ask for no start


@pytest.mark.spec("HIS-46")
def test_points_are_all_apis_at_all_moments_and_the_seed_draws_which_request() -> None:
    late = dict.fromkeys([("EndTxn", "tom"), ("OffsetCommit", "tom"), ("TxnOffsetCommit", "tom")], 3)
    asked = {**late, ("Fetch", "anna"): 9, ("Fetch", "bert"): 2, ("OffsetForLeaderEpoch", "anna"): 1}
    found = points("transaction", asked, 5)
    assert found == points("transaction", asked, 5)
    assert {(point.api, point.manner) for point in found} == {
        (api, manner) for api in ("EndTxn", "Fetch", "OffsetCommit", "TxnOffsetCommit") for manner in MANNERS
    } - {(api, "late") for api, _ in late}
    drawn = [point for seed in range(100) for point in points("transaction", asked, seed)]
    assert {point.nth for point in drawn if point.client == "tom"} == {1, 2, 3}
    assert {point.client for point in drawn if point.api == "Fetch"} == {"anna", "bert"}
    assert {point.busiest for point in drawn} == {"tom", "anna"}
    assert {point.stops for point in drawn} == {True, False}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Ours(tmp_path_factory.mktemp("frames") / "cluster") as running:
        yield running


def _play_some(stage: Stage, story: str, directory: Path, *manners: str) -> None:
    """Tell the story as it is, then with each of these at a request that is drawn."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    plain = tell(stage, story, directory / "plain")
    assert plain.is_clean, str(plain)
    assert {api for api, _ in plain.asked} >= _apis_of(story)
    for manner in manners:
        point = random.Random(seed).choice([p for p in points(story, plain.asked, seed) if p.manner == manner])
        _is_clean(stage, point, directory / manner)


def _is_clean(stage: Stage, point: Point, directory: Path) -> None:
    print(point)
    told = play(stage, point, directory)
    assert told.is_clean, f"{point}: {told}"


def _apis_of(story: str) -> set[str]:
    return BOTH | GROUPS - {"OffsetCommit"} | TRANSACTIONS if story == "transaction" else BOTH | GROUPS


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.spec("HIS-45", "HIS-46")
def test_something_happens_at_a_request_and_nothing_is_seen_that_must_not_be(
    stage: Stage, story: str, tmp_path: Path
) -> None:
    _play_some(stage, story, tmp_path, random.choice(MANNERS))


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.spec("HIS-45", "HIS-46")
def test_at_every_request_of_a_story_the_broker_may_die(stage: Stage, story: str, tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    played = list(sweep(stage, [story], tmp_path, seed, MANNERS))
    assert {(point.api, point.manner) for point, _ in played} >= {
        (api, manner) for api in _apis_of(story) for manner in KILLS
    }
    assert len([point for point, _ in played if point.manner in KILLS]) >= 30  # of each story: 60 in all
    assert not (bad := [f"{point}: {told}" for point, told in played if not told.is_clean]), "\n".join(bad)


@pytest.mark.slow
@pytest.mark.spec("HIS-13", "HIS-46")
def test_frames_tell_the_generations_that_clients_know(stage: Stage, tmp_path: Path) -> None:
    record = stage.doors.record = Record(tmp_path / "frames.jsonl")
    first = next(stage.numbers) * 2 * PARTITIONS
    stage.make_topics(topic_of(first), partitions=PARTITIONS)
    cell = Cell("subscribe", "plain")
    members = [Librdkafka(stage.bootstrap, cell, number, group="told", heartbeat_ms=200) for number in (1, 2)]

    def have_settled(present: list[Librdkafka]) -> bool:
        for member in present:
            member.poll()
        known = [member.generation for member in present]
        told = [record.generation_of(member.member) for member in present]
        return known == told == [known[0]] * len(present) and known[0] is not None

    try:
        members[0].subscribe([first])
        eventually(lambda: have_settled(members[:1]), "the generation of one")
        alone = members[0].generation
        members[1].subscribe([first])
        eventually(lambda: have_settled(members), "the generation of both")
        both = members[0].generation
        assert alone is not None and both is not None and alone < both
    finally:
        for member in members:
            member.close()
    record.close()


@pytest.mark.slow
@pytest.mark.slowest
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.spec("HIS-45", "HIS-46")
def test_the_same_before_real_kafka(story: str, tmp_path: Path) -> None:
    real_kafka.require("2.8.2")
    with Kafkas("2.8.2", tmp_path / "kafka") as real:
        _play_some(real, story, tmp_path, random.choice(KILLS), "lost")
