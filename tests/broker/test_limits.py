"""Every limit of a broker, and what goes a tenth beyond it: refused, counted, said once, while others are served (SEC-103).

The names of the table's rows are those of the cases: a limit without a case fails, and a case without a limit.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from kafkatool.broker.administration import topics
from kafkatool.broker.groups import group, handed_out, owned
from kafkatool.broker.limits import FILE_NAME, Limit, Limits
from kafkatool.broker.network import acceptor
from kafkatool.broker.runtime.allowance import Allowance
from kafkatool.broker.server import Broker
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.protocol.codec.schema import Request
from kafkatool.core.protocol.messages import (
    api_versions,
    create_partitions,
    create_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    list_offsets,
    metadata,
    offset_fetch,
    produce,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import Record, encode_batch
from tests.broker.handlers.served import Client
from tests.broker.network.secured import ALICE, HANDSHAKE_1, JAAS, authenticate
from tests.broker.test_server import client_of, config, create
from tests.paths import ROOT
from tests.waiting import eventually

INNER, OPEN, MINE = range(3)  # the brokers' own listener, one of anybody, one with a login


class Stage:
    """A broker, and clients of its listeners, closed at the end."""

    def __init__(self, broker: Broker, clients: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.monkeypatch = monkeypatch
        self._clients = clients

    def client(self, listener: int = OPEN, address: str = "") -> Client:
        made = Client(self.broker.endpoints[listener].port, from_address=address)
        return self._clients.enter_context(closing(made))

    def serves(self, client: Client) -> None:
        """Have it ask something that is answered at once."""
        assert client.call(api_versions.API, 0, api_versions.ApiVersionsRequest()).error_code == 0

    def log_in(self, client: Client) -> None:
        for step in (HANDSHAKE_1, authenticate(ALICE)):
            assert client.ask(step)[4:6] == b"\0\0"

    def grouped(self) -> Client:
        """Return a client when there is a coordinator of its groups."""
        client = self.client()
        wanted = offset_fetch.OffsetFetchRequest(group_id="known", topics=[])

        def is_there() -> bool:
            client.call(find_coordinator.API, 1, find_coordinator.FindCoordinatorRequest(key="known"))
            return bool(client.call(offset_fetch.API, 5, wanted).error_code == 0)

        eventually(is_there, "a coordinator of groups")
        return client

    def create(self, topic: str) -> None:
        """Make a topic, once there is a controller."""
        with client_of(self.broker) as client:
            eventually(lambda: create(client, topic, 1, 1) in (0, ErrorCode.TOPIC_ALREADY_EXISTS), "a controller")

    def until(self, limit: Limit, times: int = 1) -> None:
        eventually(lambda: self.broker.limits.count(limit) >= times, f"{times} times {limit}")


def join(group_id: str, metadata_bytes: int = 10) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[join_group.JoinGroupProtocol(name="range", metadata=bytes(metadata_bytes))],
    )


def joined(client: Client, group_id: str) -> int:
    """Ask for a member's id; return the code."""
    return int(client.call(join_group.API, 4, join(group_id)).error_code)


# --- a tenth beyond each ------------------------------------------------------------------------------------------------


def _one_waits(stage: Stage, limit: Limit) -> None:
    clients = [stage.client() for _ in range(9)]  # and the one that is there at all times
    for client in clients:
        stage.serves(client)
    late = stage.client()
    stage.until(limit)
    clients[0].close()
    stage.serves(late)


def connections(stage: Stage) -> None:
    _one_waits(stage, Limit.CONNECTIONS)


def connections_of_listener(stage: Stage) -> None:
    _one_waits(stage, Limit.CONNECTIONS_OF_LISTENER)


def connections_of_address(stage: Stage) -> None:
    clients = [stage.client(address="127.0.0.7") for _ in range(10)]
    for client in clients:
        stage.serves(client)
    assert stage.client(address="127.0.0.7").is_closed_by_server()
    clients[0].close()


def open_files(stage: Stage) -> None:
    taken = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    with stage.monkeypatch.context() as few:
        few.setattr(acceptor, "first_not_for_connections", lambda: taken + 20)
        clients = []
        while not stage.broker.limits.count(Limit.OPEN_FILES):
            clients.append(stage.client())
            assert len(clients) <= taken + 20, "each takes at least one of those numbers"
            try:
                stage.serves(clients[-1])
            except (EOFError, ConnectionError):
                stage.until(Limit.OPEN_FILES)


def unauthenticated(stage: Stage) -> None:
    clients = [stage.client(MINE) for _ in range(11)]  # of one address a quarter of 40
    assert clients[0].is_closed_by_server()
    stage.log_in(stage.client(MINE, "127.0.0.7"))


def login_time(stage: Stage) -> None:
    assert stage.client(MINE).is_closed_by_server()


def frame_before_login(stage: Stage) -> None:
    late = stage.client(MINE)
    late.socket.sendall((1100).to_bytes(4, "big"))
    assert late.is_closed_by_server()
    stage.log_in(stage.client(MINE))


def frame(stage: Stage) -> None:
    client = stage.client()
    client.socket.sendall((110_000).to_bytes(4, "big"))
    assert client.is_closed_by_server()


def _fetched(partitions: range) -> fetch.FetchRequestTopic:
    wanted = [fetch.FetchRequestPartition(partition=n, fetch_offset=0, partition_max_bytes=1) for n in partitions]
    return fetch.FetchRequestTopic(topic="t", partitions=wanted)


def _produced(client: Client, count: int) -> int:
    """Produce a batch of so many records; return the code."""
    batch = bytes(encode_batch([Record(n, 0, b"k", b"v") for n in range(count)]))
    partition = produce.ProduceRequestPartition(partition=0, records=batch)
    topic = produce.ProduceRequestTopic(topic="t", partitions=[partition])
    told = client.call(produce.API, 7, produce.ProduceRequest(acks=1, timeout_ms=60_000, topics=[topic]))
    return int(told.topics[0].partitions[0].error_code)


def request_bytes(stage: Stage) -> None:
    stage.create("t")
    holder, other = stage.client(), stage.client()
    waits = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=3_600_000,
        min_bytes=1,
        max_bytes=1000,
        session_id=0,
        session_epoch=-1,
        topics=[_fetched(range(1))],
        forgotten_topics=[fetch.ForgottenTopic(topic="x" * 22_000, partitions=[])] * 5,
    )
    holder.send_request(fetch.API, 7, waits)  # answered when there is a record
    sockets = stage.broker._sockets  # noqa: SLF001  # that it is full cannot be asked without being kept waiting
    eventually(lambda: sockets.received_bytes > 100_000, "the request to be read")
    other.send_request(api_versions.API, 0, api_versions.ApiVersionsRequest())
    stage.until(Limit.REQUEST_BYTES)
    assert _produced(stage.client(INNER), 1) == ErrorCode.NONE  # who comes by the brokers' listener is read
    assert other.receive_response(api_versions.API, 0).error_code == 0


def elements(stage: Stage) -> None:
    client = stage.client()
    names = [metadata.MetadataRequestTopic(topic="x")] * 275_000
    client.send_request(metadata.API, 1, metadata.MetadataRequest(topics=names))
    assert client.is_closed_by_server()


def partitions(stage: Stage) -> None:
    client = stage.client()
    for asked, code in ((1000, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1100, ErrorCode.INVALID_REQUEST)):
        wanted = [list_offsets.ListOffsetsRequestPartition(partition=n, timestamp=-1) for n in range(asked)]
        half = [list_offsets.ListOffsetsRequestTopic(topic=t, partitions=wanted[::2]) for t in ("t", "u")]
        told = client.call(list_offsets.API, 1, list_offsets.ListOffsetsRequest(replica_id=-1, topics=half))
        assert {p.error_code for t in told.topics for p in t.partitions} == {code}


def session_partitions(stage: Stage) -> None:
    sessions = stage.broker._replica_manager.fetch_sessions  # noqa: SLF001  # not a million in a test
    assert sessions._most_partitions == 1_000_000  # noqa: SLF001
    sessions._most_partitions = 100  # noqa: SLF001
    client = stage.client()
    request = fetch.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        session_id=0,
        session_epoch=0,
        topics=[_fetched(range(110))],
    )
    assert client.call(fetch.API, 7, request).session_id == 0


def _asked_for(client: Client, names: list[str]) -> set[int]:
    topics_ = [metadata.MetadataRequestTopic(topic=name) for name in names]
    told = client.call(metadata.API, 4, metadata.MetadataRequest(topics=topics_, allow_auto_topic_creation=True))
    return {t.error_code for t in told.topics}


def topics_by_metadata(stage: Stage) -> None:
    stage.create("first")  # so that the broker has heard of itself: before, none can be made
    client = stage.client()
    names = [f"new-{number}" for number in range(11)]
    assert _asked_for(client, names) == {ErrorCode.LEADER_NOT_AVAILABLE}
    stage.until(Limit.TOPICS_BY_METADATA)
    eventually(lambda: _asked_for(client, names) == {ErrorCode.NONE}, "the last to be made, when it is asked for again")


def topics_a_second(stage: Stage) -> None:
    stage.create("first")
    client = stage.client()
    ten = [f"new-{number}" for number in range(10)]  # all that it has saved, as time stands still
    assert _asked_for(client, ten) == {ErrorCode.LEADER_NOT_AVAILABLE}
    eventually(lambda: _asked_for(client, ten) == {ErrorCode.NONE}, "ten topics")
    assert _asked_for(client, ["one-more"]) == {ErrorCode.LEADER_NOT_AVAILABLE}


def created_replicas(stage: Stage) -> None:
    stage.create("small")
    client = stage.client()
    wanted = [
        create_topics.CreateTopicsTopic(
            name=f"t{n}", num_partitions=20_000, replication_factor=1, assignments=[], configs=[]
        )
        for n in range(11)
    ]
    told = client.call(create_topics.API, 1, create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=1000))
    assert {t.error_code for t in told.topics} == {ErrorCode.INVALID_REQUEST}


def ids(stage: Stage) -> None:
    request = heartbeat.HeartbeatRequest(group_id="g" * 4506, generation_id=1, member_id="m")
    assert stage.grouped().call(heartbeat.API, 0, request).error_code == ErrorCode.INVALID_GROUP_ID


def members_metadata(stage: Stage) -> None:
    stage.monkeypatch.setattr(group, "MOST_METADATA_BYTES", 1000)
    told = stage.grouped().call(join_group.API, 3, join("g", 1100))
    assert told.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def new_groups(stage: Stage) -> None:
    stage.monkeypatch.setattr(owned, "MOST_NEW_GROUPS", 10)
    client = stage.grouped()
    assert {joined(client, f"g-{n}") for n in range(11)} == {ErrorCode.MEMBER_ID_REQUIRED}


def member_ids(stage: Stage) -> None:
    stage.monkeypatch.setattr(group, "MOST_PENDING", 10)
    client = stage.grouped()
    assert [joined(client, "g") for _ in range(11)] == [
        *[ErrorCode.MEMBER_ID_REQUIRED] * 10,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def member_ids_of_connection(stage: Stage) -> None:
    assert handed_out.MOST_OF_CONNECTION == 1000
    stage.monkeypatch.setattr(handed_out, "MOST_OF_CONNECTION", 100)
    client = stage.grouped()
    told = [joined(client, f"g-{number}") for number in range(110)]
    assert told == [*[ErrorCode.MEMBER_ID_REQUIRED] * 100, *[ErrorCode.GROUP_MAX_SIZE_REACHED] * 10]
    assert joined(stage.client(), "g-0") == ErrorCode.MEMBER_ID_REQUIRED


def records(stage: Stage) -> None:
    stage.create("t")
    client = stage.client()
    assert [_produced(client, count) for count in (100, 110)] == [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]


class Case(NamedTuple):
    """How a limit is gone beyond, of a broker with these properties."""

    exceed: Callable[[Stage], None]
    properties: Mapping[str, str] = {}


CASES: Final = {
    Limit.CONNECTIONS: Case(connections, {"max.connections": "10", "listener.name.open.max.connections": "11"}),
    Limit.CONNECTIONS_OF_LISTENER: Case(connections_of_listener, {"listener.name.open.max.connections": "10"}),
    Limit.CONNECTIONS_OF_ADDRESS: Case(connections_of_address, {"max.connections.per.ip": "10"}),
    Limit.OPEN_FILES: Case(open_files),
    Limit.UNAUTHENTICATED: Case(unauthenticated, {"kt.max.unauthenticated.connections": "40"}),
    Limit.LOGIN_TIME: Case(login_time, {"kt.authentication.timeout.ms": "1000"}),
    Limit.FRAME_BEFORE_LOGIN: Case(frame_before_login, {"sasl.server.max.receive.size": "1000"}),
    Limit.FRAME: Case(frame, {"socket.request.max.bytes": "100000"}),
    Limit.REQUEST_BYTES: Case(request_bytes, {"queued.max.request.bytes": "100000"}),
    Limit.ELEMENTS: Case(elements),
    Limit.PARTITIONS: Case(partitions, {"kt.max.partitions.per.request": "1000"}),
    Limit.SESSION_PARTITIONS: Case(session_partitions),
    Limit.TOPICS_BY_METADATA: Case(topics_by_metadata, {"kt.max.auto.created.topics.per.request": "10"}),
    Limit.TOPICS_A_SECOND: Case(topics_a_second, {"kt.max.auto.created.topics.per.request": "10"}),
    Limit.CREATED_REPLICAS: Case(created_replicas),
    Limit.IDS: Case(ids),
    Limit.MEMBERS_METADATA: Case(members_metadata),
    Limit.NEW_GROUPS: Case(new_groups),
    Limit.MEMBER_IDS: Case(member_ids),
    Limit.MEMBER_IDS_OF_CONNECTION: Case(member_ids_of_connection),
    Limit.RECORDS: Case(records, {"kt.max.records.per.batch": "100"}),
}


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, zk_connect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    limit: Limit = request.getfixturevalue("limit")
    if limit is Limit.TOPICS_A_SECOND:
        monkeypatch.setattr(topics, "Allowance", partial(Allowance, clock=lambda: 0.0))
    given: dict[str, Any] = {
        "listeners": "INNER://127.0.0.1:0,OPEN://127.0.0.1:0,MINE://127.0.0.1:0",
        "listener.security.protocol.map": "INNER:PLAINTEXT,OPEN:PLAINTEXT,MINE:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INNER",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.mine.plain.sasl.jaas.config": JAAS,
        "kt.authentication.timeout.ms": "200000",  # a peer may stand still before its login
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        **CASES[limit].properties,
    }
    with Broker(config(zk_connect, tmp_path / "data", **given)) as broker, ExitStack() as clients:
        yield Stage(broker, clients, monkeypatch)


@pytest.mark.spec("SEC-103", "SEC-95", "SEC-96", "SEC-97", "SEC-98", "SEC-99", "SEC-100", "SEC-101", "SEC-102")
@pytest.mark.parametrize("limit", Limit, ids=lambda limit: limit.name.lower())
def test_a_tenth_beyond_a_limit_is_counted_and_said_once_and_others_are_served(
    limit: Limit, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    other = stage.client()
    stage.serves(other)
    CASES[limit].exceed(stage)
    stage.until(limit)
    stage.serves(other)
    if limit not in (Limit.CONNECTIONS, Limit.CONNECTIONS_OF_LISTENER):  # where all places are taken still
        stage.serves(stage.client())
    said = [record for record in caplog.records if record.msg == limit.line + "%s"]
    assert 1 <= len(said) <= 1 + (time.monotonic() - began) // 60, "once a minute"
    assert all(record.levelno == logging.WARNING and record.getMessage() for record in said)
    assert stage.broker.gauges()[limit.gauge] >= 1
    file = stage.broker.config.own_log_dir / FILE_NAME
    eventually(lambda: json.loads(file.read_text())[limit.gauge] >= 1, f"{limit.gauge} in {file}")


# --- the table ----------------------------------------------------------------------------------------------------------

NUMBERS: Final = {  # of limits that no property sets
    "groups.group.MOST_PENDING": Limit.MEMBER_IDS,
    "groups.group.MOST_METADATA_BYTES": Limit.MEMBERS_METADATA,
    "groups.handed_out.MOST_OF_CONNECTION": Limit.MEMBER_IDS_OF_CONNECTION,
    "groups.owned.MOST_NEW_GROUPS": Limit.NEW_GROUPS,
    "coordination.ids.LONGEST_ID_BYTES": Limit.IDS,
    "administration.topics.AUTO_CREATED_A_SECOND": Limit.TOPICS_A_SECOND,
    "handlers.create_topics.MOST_REPLICAS": Limit.CREATED_REPLICAS,
    "replication.leading.fetch_sessions.MOST_PARTITIONS": Limit.SESSION_PARTITIONS,
}
PROPERTIES: Final = re.compile(
    r"(kt\.max\..*|max\.connections(\.per\.ip)?|.*\.max\.receive\.size|queued\.max\.request\.bytes)"
)
"""Of a broker's properties those that bound what others may ask of it."""


@pytest.mark.spec("SEC-103")
def test_every_limit_has_its_row_and_every_row_its_test() -> None:
    assert CASES.keys() == set(Limit)
    gauges = [limit.gauge for limit in Limit]
    assert len(set(gauges)) == len(gauges)
    bounds = {limit.bound: limit for limit in Limit}
    assert len(bounds) == len(gauges)
    known = BrokerConfig.property_names()
    assert {name for name in known if PROPERTIES.fullmatch(name)} <= bounds.keys()
    fixed = {limit for bound, limit in bounds.items() if re.sub(r"^listener\.name\.<name>\.", "", bound) not in known}
    assert fixed == {*NUMBERS.values(), Limit.OPEN_FILES, Limit.ELEMENTS}


@pytest.mark.spec("SEC-103", "SEC-99", "SEC-100", "SEC-101")
def test_the_numbers_of_the_table_are_those_of_the_code() -> None:
    found = set()
    package = ROOT / "kafkatool" / "broker"
    for file in package.rglob("*.py"):
        room = ".".join(file.relative_to(package).with_suffix("").parts)
        for name in re.findall(r"^((?:MOST|LONGEST_ID|AUTO_CREATED)_\w+)\b.*=", file.read_text(), re.MULTILINE):
            found.add(f"{room}.{name}")
    assert found == NUMBERS.keys()
    for name, limit in NUMBERS.items():
        module, _, constant = name.rpartition(".")
        number = getattr(import_module(f"kafkatool.broker.{module}"), constant)
        assert limit.bound.split()[0] == str(number)
    sizes: list[Any] = [Request.most_elements, create_topics.CreateTopicsRequest.most_elements]
    assert create_partitions.CreatePartitionsRequest.most_elements == sizes[1]
    assert re.findall(r"\d+", Limit.ELEMENTS.bound) == [str(size) for size in sizes]


@pytest.mark.spec("SEC-103")
def test_the_page_names_each_gauge_with_its_bound() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    for limit in Limit:
        assert f"| `{limit.gauge}` | {limit.bound if ' ' in limit.bound else f'`{limit.bound}`'} |" in page


@pytest.mark.spec("SEC-103", "SEC-97", "SEC-60")
def test_a_line_a_minute_for_each_address_and_ten_a_second_of_all(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    limits = Limits(clock=lambda: now[0])
    for number in range(25):
        for _ in range(2):
            limits.reached(Limit.CONNECTIONS_OF_ADDRESS, f"h{number}", key=f"h{number}")
    assert [record.getMessage() for record in caplog.records] == [
        f"closing a connection from h{number}: it has max.connections.per.ip already" for number in range(10)
    ]
    now[0] += 60
    limits.reached(Limit.CONNECTIONS_OF_ADDRESS, "h3", key="h3")
    assert caplog.messages[-1].endswith("it has max.connections.per.ip already (and 1 more since it was last told)")
    assert limits.count(Limit.CONNECTIONS_OF_ADDRESS) == 51
    assert limits.gauges() == {limit.gauge: 51 * (limit is Limit.CONNECTIONS_OF_ADDRESS) for limit in Limit}
