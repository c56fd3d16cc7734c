"""kt replica-verify as a consumer of Fetch 13 and later, which name topics by their ids, and of what is before."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkatool import __version__
from kafkatool.commands.main import kt
from kafkatool.core.client.addresses import Address
from kafkatool.core.client.connections import Connections
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.verification.replica_reader import BrokerReader, layout_from_brokers
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.operations.verification.fake_broker import FakeBroker, batches, fake_cluster, id_of

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
LOG = batches(b"a", b"b")
NEW_ID = b"made anew".ljust(16)
CODES = pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID])

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
def brokers() -> Iterator[Mapping[int, FakeBroker]]:
    """Two, which hold the same of two topics."""
    with fake_cluster({b: {T: LOG, U: LOG} for b in (1, 2)}) as running:
        yield running


def fetches(broker: FakeBroker) -> list[tuple[int, Mapping[str, bytes]]]:
    """Return the versions of its fetches, and what they name topics by."""
    found = [(version, request) for name, version, request in broker.asked if name == "Fetch"]
    return [(version, {t.topic: t.topic_id for t in request.topics}) for version, request in found]


def kinds(broker: FakeBroker) -> list[tuple[str, int]]:
    return [(name, version) for name, version, _ in broker.asked]


def verify(brokers: Mapping[int, FakeBroker], *flags: str) -> None:
    address = f"127.0.0.1:{brokers[1].addresses[1]}"
    result = CliRunner().invoke(kt, ["replica-verify", "--broker-list", address, "--once", *flags])
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" equal: ") == 2


@pytest.mark.spec("ADM-15", "ADM-11")
def test_topics_are_named_by_their_ids_over_one_connection_to_each_broker(
    brokers: Mapping[int, FakeBroker], tmp_path: Path
) -> None:
    verify(brokers)
    for broker in brokers.values():
        named = fetches(broker)
        assert {version for version, _ in named} == {17} and broker.replica_ids == {-2}
        ids = [t.topic_id for name, _, request in broker.asked if name == "Fetch" for t in request.topics]
        assert set(ids) == {id_of("t"), id_of("u")}
        assert broker.connections == 1 and broker.client_ids == {"kt-replica-verify"}
        (first, *others) = broker.asked
        assert first[:2] == ("ApiVersions", 3) and all(name != "ApiVersions" for name, _, _ in others)
        assert (first[2].client_software_name, first[2].client_software_version) == ("kt", __version__)
    assert sum(name == "Metadata" for b in brokers.values() for name, _, _ in b.asked) == 2, "layout, rights"
    (config := tmp_path / "client.properties").write_text("client.id=me\n")
    verify(brokers, "--command-config", str(config))
    assert brokers[2].client_ids == {"kt-replica-verify", "me"}


@pytest.mark.spec("ADM-15")
@pytest.mark.parametrize("known", ["none", "one"])
def test_without_an_id_of_each_topic_they_are_named_by_their_names(
    brokers: Mapping[int, FakeBroker], known: str
) -> None:
    for broker in brokers.values():
        broker.topic_ids = {} if known == "none" else {"t": id_of("t")}
    verify(brokers)
    for broker in brokers.values():
        assert fetches(broker)[0] == (12, {"t": NO_UUID, "u": NO_UUID})
        assert {version for version, _ in fetches(broker)} <= {12, 17} and broker.replica_ids == {-2}


@pytest.mark.spec("ADM-15")
@pytest.mark.parametrize("newest", [3, 12, 13, 14, 15])
def test_each_broker_is_read_in_its_own_newest_version(brokers: Mapping[int, FakeBroker], newest: int) -> None:
    brokers[2].fetch_versions = (3, newest)
    verify(brokers)
    assert {version for version, _ in fetches(brokers[2])} == {newest} and brokers[2].replica_ids == {-2}
    assert {version for version, _ in fetches(brokers[1])} == {17}


class Reading:
    """A reader of two brokers whose ids were told, for requests one by one."""

    def __init__(self, brokers: Mapping[int, FakeBroker], connections: Connections) -> None:
        address = Address("127.0.0.1", brokers[1].addresses[1])
        layout = layout_from_brokers([address], lambda topics: topics, connections)
        self._reader = BrokerReader(layout, connections, fetch_size_bytes=1 << 20, max_wait_ms=10)
        self._broker = brokers[1]

    def fetch(self) -> tuple[dict[str, Any], list[tuple[str, int]]]:
        """Return what was read of each topic, and what was asked for that."""
        self._broker.asked.clear()
        found = self._reader.fetch(1, {T: 0, U: 0}, wait=True)
        return {p.topic: f if isinstance(f, str) else len(f.entries) for p, f in found.items()}, kinds(self._broker)


@pytest.fixture
def reading(brokers: Mapping[int, FakeBroker]) -> Iterator[Reading]:
    with Connections() as connections:
        yield Reading(brokers, connections)


@CODES
@pytest.mark.spec("ADM-15")
def test_another_id_has_the_metadata_read_again_and_the_topic_alone_fetched_again(
    brokers: Mapping[int, FakeBroker], reading: Reading, code: ErrorCode
) -> None:
    brokers[1].other_id = code
    assert reading.fetch() == ({"t": 2, "u": 2}, [("Fetch", 17)])
    brokers[1].topic_ids["u"] = NEW_ID
    assert reading.fetch() == ({"t": 2, "u": 2}, [("Fetch", 17), ("Metadata", 12), ("Fetch", 17)])
    _, (_, _, about), (_, _, again) = brokers[1].asked
    assert [t.topic for t in about.topics] == ["u"] and not about.allow_auto_topic_creation
    assert [t.topic_id for t in again.topics] == [NEW_ID]
    assert reading.fetch() == ({"t": 2, "u": 2}, [("Fetch", 17)]), "it is known from then on"


@CODES
@pytest.mark.spec("ADM-15")
def test_the_metadata_is_read_again_once_and_what_is_refused_then_is_told(
    brokers: Mapping[int, FakeBroker], reading: Reading, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker tells an id, and refuses it."""
    brokers[1].other_id = code
    answer, told = brokers[1].answer, brokers[1].answer(3, 12, None)
    brokers[1].topic_ids["u"] = NEW_ID
    monkeypatch.setattr(
        brokers[1], "answer", lambda key, version, asked: told if key == 3 else answer(key, version, asked)
    )
    found, asked = reading.fetch()
    assert found == {"t": 2, "u": code.name}
    assert asked == [("Fetch", 17), ("Metadata", 12), ("Fetch", 17)]


@pytest.mark.spec("ADM-15")
def test_a_topic_that_is_gone_has_no_id_any_more(brokers: Mapping[int, FakeBroker], reading: Reading) -> None:
    del brokers[1].topic_ids["u"], brokers[1].logs[U]
    found, asked = reading.fetch()
    gone = {"t": 2, "u": "UNKNOWN_TOPIC_OR_PARTITION"}
    assert (found, asked) == (gone, [("Fetch", 17), ("Metadata", 12), ("Fetch", 12)])
    assert reading.fetch() == (gone, [("Fetch", 12)])
