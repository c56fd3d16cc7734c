"""What clients make of a code that they are answered once, on a broker of ours: as on Kafka's (section 15, TXN-101).

``AGAIN``: the client asks once more by itself, and nobody notices. ``ABORT``: the application is told and aborts, then a
later transaction of the producer works. ``OVER``: none does, another producer is needed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from tests.compat.client_process import ClientProcess
from tests.compat.client_programs import PREPARE, MissingError
from tests.steady import LASTING

pytestmark = [pytest.mark.slow, pytest.mark.slowest, pytest.mark.timeout(900)]

AGAIN, ABORT, OVER, ANY = "again", "abort", "over", "any"
I, P, E, PRODUCE = "InitProducerId", "AddPartitionsToTxn", "EndTxn", "Produce"  # noqa: E741  # as in the requirements
CLOSED: Final = 0
"""Not a code: the connection is closed instead."""
CLIENTS: Final = ("confluent-kafka", "aiokafka", "kafka-python")
ALL_AGAIN: Final = (AGAIN,) * 3
ROWS: Final[Mapping[tuple[str, int], tuple[str, str, str]]] = {  # of the clients, in their order
    **{(api, code): ALL_AGAIN for api in (I, P, E) for code in (14, 15, 16, 51, CLOSED)},
    **{(I, code): (OVER,) * 3 for code in (47, 50, 53, 90)},
    **{(api, code): (OVER,) * 3 for api in (P, E) for code in (47, 48, 53, 90)},
    **{(api, 49): (ABORT, OVER, OVER) for api in (P, E)},
    (P, 120): (ABORT, OVER, ABORT),
    (P, 3): ALL_AGAIN,
    (P, 29): (ABORT, ANY, ABORT),  # aiokafka writes all the same, and gets 48 from leaders that verify
    **{(PRODUCE, code): ALL_AGAIN for code in (6, 7, 19, CLOSED)},
    **{(PRODUCE, code): (OVER,) * 3 for code in (45, 47)},
    **{(PRODUCE, code): (ABORT, OVER, OVER) for code in (48, 49, 59, 120)},
}
_TRIES: Final = 3  # librdkafka needs the second transaction to learn that its sequence was not taken


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, directory=tmp_path_factory.mktemp("codes") / "cluster", options=LASTING) as running:
        yield running


def reaction(cluster: EmbeddedCluster, by: ClientProcess, name: str, api: str, code: int) -> str:
    """Have a producer of its own meet the code: at its start, at the first batch of a second partition, or at an end."""
    cluster.create_topic(name, partitions=2)
    init, begin, commit = ("init", name, 60_000), ("begin",), ("commit",)
    first, second = (("send", name, partition, 0, "value") for partition in (0, 1))
    met_at = {I: init, P: second, PRODUCE: second, E: commit}[api]
    fault = None
    for words in (init, begin, first, second, commit):
        if words == met_at:
            faults = cluster.faults
            fault = faults.disconnect(api, times=1) if code == CLOSED else faults.answer(api, code, times=1)
        if by.step(name, *words):
            break
    else:
        assert fault is not None and fault.hits == 1
        return AGAIN
    assert fault is not None and fault.hits == 1, (words, by.words())
    for _ in range(_TRIES):
        if words == init or by.step(name, "abort"):
            return OVER
        if not any(by.step(name, *words) for words in (begin, first, second, commit)):
            return ABORT
    return OVER


@pytest.mark.spec("TXN-101", "TXN-29")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_reacts_to_a_code_as_it_does_on_kafka(cluster: EmbeddedCluster, tmp_path: Path, client: str) -> None:
    try:
        program = PREPARE[client]()
    except MissingError as e:
        pytest.skip(str(e))
    column = CLIENTS.index(client)
    with ClientProcess(program, tmp_path / "client.log", "transactions", cluster.bootstrap) as by:
        found = {
            (api, code): reaction(cluster, by, f"{client}-{api}-{code}", api, code)
            for (api, code), wanted in ROWS.items()
            if wanted[column] != ANY
        }
    assert found == {case: wanted[column] for case, wanted in ROWS.items() if wanted[column] != ANY}
