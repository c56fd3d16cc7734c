"""What clients make of a code that they are answered once, on a broker of ours: as on Kafka's (section 15, TXN-101).

``AGAIN``: the client asks once more by itself, and nobody notices. ``ABORT``: the application is told and aborts, then a
later transaction of the producer works. ``OVER``: none does, another producer is needed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.broker.embedded.faults import Conditions, Fault, Faults
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError, Program
from tests.integration.isolation import values_of
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(1500)]

AGAIN, ABORT, OVER = "again", "abort", "over"
FC, I, P, O, E, T = (  # noqa: E741  # as in the requirements
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
)
PRODUCE = "Produce"
CLOSED, UNHEARD, SILENT = 0, -1, -2
"""Not codes: the connection is closed instead, before or after the request took effect; it did, and there is no answer."""
Row = Mapping[tuple[str, int], str]


def _row(reaction: str, api: str, *codes: int) -> Row:
    return {(api, code): reaction for code in codes}


_MOST: Final[Row] = {  # what the first five have in common
    **{(api, code): AGAIN for api in (I, P, O, E) for code in (14, 15, 16, 51, CLOSED, UNHEARD)},
    **_row(AGAIN, T, 3, 7, 14, 15, 16, CLOSED, UNHEARD),
    **_row(AGAIN, PRODUCE, 6, 7, 19, CLOSED, UNHEARD),
    **_row(AGAIN, P, 3),
    **_row(OVER, I, 47, 50, 53, 90),
    **{(api, code): OVER for api in (P, E) for code in (47, 48, 53, 90)},
    **_row(OVER, O, 47, 48, 53),
    **_row(OVER, T, 47, 48, 49),
}
_JAVA: Final[Row] = {
    **_MOST,
    **_row(AGAIN, FC, 14, 15),
    **_row(OVER, FC, 53),
    **{(api, 49): ABORT for api in (P, E)},
    **_row(ABORT, P, 29, 120),
    **_row(OVER, O, 90),
    **_row(OVER, T, 12, 27, 90),
    **_row(ABORT, T, 22, 25, 82),
    **_row(ABORT, PRODUCE, 45, 47, 48, 49, 120),
    **_row(AGAIN, PRODUCE, 59),
}
ROWS: Final[Mapping[str, Row]] = {
    "java-2.8": {**_JAVA, (FC, 14): OVER},
    "java-3.9": _JAVA,
    "java-4.1": {**_JAVA, **{(api, 49): OVER for api in (P, E, PRODUCE)}},  # a new producer recovers from it: KIP-1050
    "confluent-kafka": {
        **_MOST,
        **_row(AGAIN, FC, 14, 15),
        **_row(OVER, FC, 53),
        **{(api, 49): ABORT for api in (P, E)},
        **_row(ABORT, P, 29, 120),
        **_row(ABORT, O, 90),
        **_row(ABORT, T, 12, 22, 25, 27, 82, 90),
        **_row(OVER, PRODUCE, 45, 47),
        **_row(ABORT, PRODUCE, 48, 49, 59, 120),
    },
    "aiokafka": {
        **_MOST,
        **_row(AGAIN, FC, 15),
        **_row(OVER, FC, 14, 53),
        **{(api, 49): OVER for api in (P, E)},
        **_row(OVER, P, 29, 120),  # it writes to a partition refused with 29 all the same: see below
        **_row(OVER, O, 90),
        **_row(OVER, T, 12, 27, 90),
        **_row(OVER, PRODUCE, 45, 47, 48, 49, 59, 120),
    },
    "kafka-python": {
        **_MOST,
        **_row(AGAIN, FC, 14, 15),
        **_row(OVER, FC, 53),
        **{(api, 49): OVER for api in (P, E)},
        **_row(ABORT, P, 29, 120),
        **_row(OVER, O, 90),
        **_row(OVER, T, 12, 27, 90),
        **_row(ABORT, T, 22, 25, 82),
        **_row(OVER, PRODUCE, 45, 47, 48, 49, 59, 120),
    },
    "franz-go": {
        **_row(AGAIN, P, 51, CLOSED, UNHEARD),
        **_row(AGAIN, E, 16, 51, CLOSED, UNHEARD),
        **_row(OVER, P, 90),
        **_row(OVER, PRODUCE, 47),
        **_row(ABORT, PRODUCE, 48),
    },
    "kafkajs": {
        **_row(AGAIN, P, 51, CLOSED, UNHEARD),
        **_row(OVER, E, 16, 47, 48, 51, CLOSED, UNHEARD),
    },
}
"""Client -> (request, code) -> what it makes of it, as recorded of Kafka's brokers (of Java 4.1: as its source is)."""
_RETRIES: Final = 3
_TRIES: Final = 3  # librdkafka needs the second transaction to learn that its sequence was not taken


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, directory=tmp_path_factory.mktemp("codes") / "cluster", options=LASTING) as running:
        yield running


def program_of(client: str) -> Program:
    try:
        return PREPARE[client]()
    except MissingError as e:
        pytest.skip(str(e))


def reaction(cluster: EmbeddedCluster, by: ClientProcess, name: str, api: str, code: int) -> str:
    """Have a producer of its own meet it: at its start, a second partition's first batch, its offsets or its end."""
    cluster.create_topic(name, partitions=2)
    init, begin, commit = ("init", name, 60_000), ("begin",), ("commit",)
    first, second = (("send", name, partition, 0, "value") for partition in (0, 1))
    offsets = ("offsets", f"group-{name}", name, 0, 1)
    met_at = {FC: init, I: init, P: second, PRODUCE: second, O: offsets, T: offsets, E: commit}[api]
    fault = None
    for words in (init, begin, first, second, *([offsets] if met_at == offsets else []), commit):
        if words == met_at:
            fault = begun(cluster.faults, name, api, code)
        if by.step(name, *words):
            break
    else:
        assert fault is not None and fault.hits == 1
        if code <= CLOSED:
            eventually(lambda: _count(cluster, name) >= 2, "both records to be committed")
            assert _count(cluster, name) == 2, "each record once"
        return AGAIN
    assert fault is not None and fault.hits == 1, (words, by.words())
    if words == init:
        return OVER
    return later(by, name, begin, first, second, commit)


def _count(cluster: EmbeddedCluster, topic: str) -> int:
    return len(values_of(cluster, topic, "read_committed", 2))


def with_settings(program: Program, directory: Path, settings: str) -> Program:
    """Return a program of Java that has these settings besides its defaults."""
    (config := directory / "client.properties").write_text(settings)
    return Program(program.command, {**program.environment, "CLIENT_CONFIG": str(config)})


def begun(faults: Faults, topic: str, api: str, code: int) -> Fault:
    conditions = Conditions(times=1, carried_out=code in (UNHEARD, SILENT))
    if api == PRODUCE:  # an earlier producer may still have something to send
        conditions["topic"] = topic
    if code == SILENT:
        return faults.silence(api, **conditions)
    if code <= CLOSED:
        return faults.disconnect(api, **conditions)
    return faults.answer(api, code, **conditions)


def later(by: ClientProcess, name: str, *transaction: tuple[object, ...]) -> str:
    """Abort, and find out whether a later transaction of the producer works."""
    for _ in range(_TRIES):
        if by.step(name, "abort"):
            return OVER
        if not any(by.step(name, *words) for words in transaction):
            return ABORT
    return OVER


@pytest.mark.spec("TXN-101", "TXN-29")
@pytest.mark.parametrize("client", ROWS)
def test_a_client_reacts_to_a_code_as_it_does_on_kafka(cluster: EmbeddedCluster, tmp_path: Path, client: str) -> None:
    program, row, found = program_of(client), ROWS[client], {}

    def process(name: str) -> ClientProcess:
        return ClientProcess(program, tmp_path / f"{name}.log", "transactions", cluster.bootstrap)

    def meet(by: ClientProcess, api: str, code: int) -> None:
        found[api, code] = reaction(cluster, by, f"{client}-{api}-{code}", api, code)

    for api, code in (one for one in row if one[0] == FC):  # which producers before it may ask at any time
        with process(f"alone-{code}") as by:
            meet(by, api, code)
    with process("client") as by:
        for api, code in (one for one in row if one[0] != FC):
            meet(by, api, code)
    assert found == row


@pytest.mark.spec("TXN-101", "TXN-42", "TXN-33")
@pytest.mark.parametrize("client", ["java-2.8", "java-3.9", "java-4.1"])
def test_java_asks_again_where_no_answer_comes(cluster: EmbeddedCluster, tmp_path: Path, client: str) -> None:
    program = with_settings(program_of(client), tmp_path, "request.timeout.ms=5000")
    with ClientProcess(program, tmp_path / "client.log", "transactions", cluster.bootstrap) as by:
        apis = (I, P, O, E, T, PRODUCE)
        found = {api: reaction(cluster, by, f"{client}-{api}-silent", api, SILENT) for api in apis}
    assert found == dict.fromkeys(apis, AGAIN)


@pytest.mark.spec("TXN-101", "TXN-74")
def test_aiokafka_aborts_after_a_refused_partition_where_leaders_do_not_verify(tmp_path: Path) -> None:
    """It writes to that partition all the same, as it does on 2.8.2, whose leaders take it; ours else answer 48."""
    program, options = program_of("aiokafka"), LASTING | {"transaction.partition.verification.enable": "false"}
    with (
        EmbeddedCluster(1, directory=tmp_path / "cluster", options=options) as cluster,
        ClientProcess(program, tmp_path / "client.log", "transactions", cluster.bootstrap) as by,
    ):
        assert reaction(cluster, by, "refused", P, 29) == ABORT


@pytest.mark.spec("TXN-29")
@pytest.mark.parametrize("client", ["java-2.8", "java-3.9", "java-4.1"])
@pytest.mark.parametrize("is_written", [False, True], ids=["lost", "written"])
def test_java_gives_up_a_batch_aborts_and_goes_on(
    cluster: EmbeddedCluster, tmp_path: Path, client: str, is_written: bool
) -> None:
    """Whether it was written the client cannot know: it has its epoch raised, which InitProducerId 2 could not do."""
    program = with_settings(program_of(client), tmp_path, f"retries={_RETRIES}")
    name = f"given-up-{client}-{is_written}"
    cluster.create_topic(name, partitions=1)
    begin, commit = ("begin",), ("commit",)
    with ClientProcess(program, tmp_path / "client.log", "transactions", cluster.bootstrap) as by:
        for words in (("init", name, 60_000), begin, ("send", name, 0, 0, "committed"), commit, begin):
            assert not by.step(name, *words)
        fault = cluster.faults.disconnect(PRODUCE, topic=name, times=_RETRIES + 1, carried_out=is_written)
        assert by.step(name, "send", name, 0, 1, "given-up")
        assert fault.hits == _RETRIES + 1
        assert later(by, name, begin, ("send", name, 0, 2, "committed"), commit) == ABORT
    given_up = ["given-up-1"] if is_written else []
    for isolation, between in (("read_committed", []), ("read_uncommitted", given_up)):
        read = [value.partition("-x")[0] for value in values_of(cluster, name, isolation)]
        assert read == ["committed-0", *between, "committed-2"], isolation
