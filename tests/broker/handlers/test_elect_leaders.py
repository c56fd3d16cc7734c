"""ElectLeaders over a raw socket, in each version; the controller's part is played by the test."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkatool.broker.administration.topics import TopicAdmin
from kafkatool.broker.controller.elected import Elected
from kafkatool.broker.handlers.call import load_handlers
from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.runtime.timer import Timer
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import elect_leaders as api
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.handlers.served import Client, broker_of, handler_context, live, state, update
from tests.broker.network.raw_client import network_config, wait_until

A, B, C = (TopicPartition("t", n) for n in range(3))
BROKERS = [live(1), live(2)]


@dataclass
class FakeController:
    """Answers with what the test put there."""

    outcomes: Mapping[TopicPartition, Elected] | ErrorCode = ErrorCode.NOT_CONTROLLER
    asked: list[tuple[Any, bool]] = field(default_factory=list)

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None,
        *,
        unclean: bool,
        done: Callable[[Mapping[TopicPartition, Elected] | ErrorCode], None],
    ) -> None:
        self.asked.append((partitions, unclean))
        done(self.outcomes)


@dataclass
class Setup:
    client: Client
    cache: MetadataCache
    controller: FakeController


@pytest.fixture
def setup() -> Iterator[Setup]:
    cache, controller, timer = MetadataCache(1), FakeController(), Timer("waits")
    cache.update(update(*(state("t", n, 1, [2, 1]) for n in range(3)), brokers=BROKERS))
    nowhere: Any = None
    admin = TopicAdmin(nowhere, network_config(), 1, cache, timer)
    context = handler_context(metadata_cache=cache, topic_admin=admin, controller=controller)
    with broker_of({43: load_handlers()[43]}, context, num_io_threads="1") as client:
        yield Setup(client, cache, controller)
    timer.close()


def request(*partitions: TopicPartition, kind: int = 0, timeout_ms: int = 60_000) -> api.ElectLeadersRequest:
    topics = [api.ElectLeadersTopic(topic=t, partitions=[p]) for t, p in partitions]
    return api.ElectLeadersRequest(election_type=kind, topics=topics, timeout_ms=timeout_ms)


def codes(answer: Any) -> dict[TopicPartition, tuple[int, str | None]]:
    return {
        TopicPartition(t.topic, p.partition): (p.error_code, p.error_message)
        for t in answer.topics
        for p in t.partitions
    }


@pytest.mark.spec("ADM-61")
@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_only_the_controller_answers_and_others_or_one_that_failed_say_so_everywhere(
    setup: Setup, version: int, code: ErrorCode
) -> None:
    setup.controller.outcomes = code
    answer = setup.client.call(api.API, version, request(A, B))
    assert answer.error_code == (code if version >= 1 else 0)
    assert {p: code for p, (code, _) in codes(answer).items()} == {A: code, B: code}
    answer = setup.client.call(api.API, version, api.ElectLeadersRequest(topics=None))
    assert (answer.error_code, answer.topics) == (code if version >= 1 else 0, [])


@pytest.mark.spec("ADM-62")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_each_partition_has_its_own_outcome(setup: Setup, version: int) -> None:
    setup.controller.outcomes = {A: Elected(ErrorCode.ELECTION_NOT_NEEDED, "why"), B: Elected(leader=1)}
    answer = setup.client.call(api.API, version, request(A, B, A))
    assert (answer.error_code, codes(answer)) == (0, {A: (84, "why"), B: (0, None)})
    setup.client.call(api.API, version, api.ElectLeadersRequest(topics=None))
    assert setup.controller.asked == [([A, B], False), (None, False)]


@pytest.mark.spec("ADM-62")
@pytest.mark.parametrize("version", [1, 2])
def test_the_type_is_heeded_and_one_that_is_not_known_refused(setup: Setup, version: int) -> None:
    setup.controller.outcomes = {}
    setup.client.call(api.API, version, request(A, kind=1))
    answer = setup.client.call(api.API, version, request(A, kind=2))
    assert (answer.error_code, codes(answer)[A][0]) == (42, 42)
    assert setup.controller.asked == [([A], True)]


@pytest.mark.spec("ADM-63")
def test_the_answer_waits_until_this_broker_has_heard_of_each_new_leader(setup: Setup) -> None:
    setup.controller.outcomes = {A: Elected(leader=2), B: Elected(leader=2), C: Elected(ErrorCode.ELECTION_NOT_NEEDED)}
    setup.client.send_request(api.API, 2, request(A, B, C))
    wait_until(lambda: bool(setup.controller.asked))  # only then may the outcomes be others
    assert setup.client.answers_nothing_for(0.1)
    setup.controller.outcomes = {C: Elected(ErrorCode.ELECTION_NOT_NEEDED)}
    with closing(Client(setup.client.socket.getpeername()[1])) as other:  # the only handler thread is free
        assert codes(other.call(api.API, 2, request(C)))[C][0] == 84
    setup.cache.update(update(state("t", 0, 2, [2, 1]), brokers=BROKERS))
    assert setup.client.answers_nothing_for(0.05)
    setup.cache.update(update(state("t", 1, 2, [2, 1]), brokers=BROKERS))
    answer = setup.client.receive_response(api.API, 2)
    assert {p: code for p, (code, _) in codes(answer).items()} == {A: 0, B: 0, C: 84}


@pytest.mark.spec("ADM-63")
def test_what_it_has_not_heard_of_in_time_is_timed_out(setup: Setup) -> None:
    setup.controller.outcomes = {A: Elected(leader=2), B: Elected(leader=2), C: Elected(ErrorCode.ELECTION_NOT_NEEDED)}
    setup.cache.update(update(state("t", 1, 2, [2, 1]), brokers=BROKERS))
    answer = setup.client.call(api.API, 2, request(A, B, C, timeout_ms=50))
    assert {p: code for p, (code, _) in codes(answer).items()} == {A: 7, B: 0, C: 84}
