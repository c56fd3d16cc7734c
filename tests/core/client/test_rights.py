"""What a refusal says, whatever was asked; what is left out of answers, and whether a broker is asked of it at all."""

import importlib
import pkgutil

import pytest

from kafkatool.core.client import rights
from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.rights import refusal
from kafkatool.core.client.settings import ClientSettings
from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerAnswerError, NotPermittedError
from kafkatool.core.operations import requests
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import create_topics, describe_log_dirs, fetch, find_coordinator, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from tests.core.client.fake_broker import FakeBroker

WHO = {"broker": "broker 2", "principal": "User:alice"}


@pytest.mark.spec("SEC-40")
@pytest.mark.parametrize(
    ("api", "code", "name", "words"),
    [
        (fetch.API, 29, "orders", "Read on topic orders"),
        (create_topics.API, 29, "orders", "Create on topic orders"),
        (create_topics.API, 31, "orders", "Create on cluster"),
        (describe_log_dirs.API, 31, None, "Describe on cluster"),
        (find_coordinator.API, 30, "g", "Describe on group g"),
        (fetch.API, 53, "t", "Read on transactional id t"),
        (fetch.API, 65, None, "Read on delegation token"),
        (metadata.API, 29, rights.EVERY_TOPIC, "Describe on every topic"),
    ],
)
def test_a_refusal_says_which_right_on_what_where_and_who(api: Api, code: int, name: str | None, words: str) -> None:
    error = refusal(api, code, "Kafka's own words", name, **WHO)
    assert isinstance(error, NotPermittedError) and error.code == code
    assert str(error) == f"not permitted: {words} (broker 2 as User:alice)"


def test_what_is_no_refusal_stays_in_the_brokers_words() -> None:
    error = refusal(fetch.API, 38, "too many", "orders", **WHO)
    assert type(error) is BrokerAnswerError and str(error) == "too many"


@pytest.mark.spec("SEC-40")
def test_every_request_that_kt_makes_has_a_right_of_its_own() -> None:
    """A request that is new here must be in the table, else its own name stands for the right."""
    made: set[str] = set()
    for found in pkgutil.iter_modules(requests.__path__):
        module = importlib.import_module(f"{requests.__name__}.{found.name}")
        made |= {value.API.name for value in vars(module).values() if isinstance(getattr(value, "API", None), Api)}
    assert len(made) > 15 and made <= rights.OPERATIONS.keys(), made - rights.OPERATIONS.keys()


@pytest.mark.spec("SEC-40")
def test_what_several_brokers_leave_out_is_one_thing() -> None:
    unseen = Unseen()
    for broker in ("broker 1", "broker 3", "broker 1"):
        error = refusal(describe_log_dirs.API, 31, None, None, broker=broker, principal="User:alice")
        assert isinstance(error, NotPermittedError)
        unseen.note(error, "sizes are not known")
    (found,) = unseen
    assert found.text == "not permitted: Describe on cluster (brokers 1, 3 as User:alice): sizes are not known"
    assert unseen.take("topic t") is None
    taken = unseen.take("cluster")
    assert taken is not None and taken.broker == "broker 1" and not unseen


@pytest.mark.spec("SEC-40")
@pytest.mark.parametrize(("newest", "is_asked"), [(12, True), (4, True), (3, False)])
def test_of_all_topics_it_is_asked_once_whether_those_are_all(newest: int, is_asked: bool) -> None:
    """A version before 4 would have the topic made."""

    def answer(request: MetadataRequest) -> object:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return broker.metadata(
            [MetadataResponseTopic(topic=str(t.topic), error_code=refused, partitions=[]) for t in request.topics or ()]
        )

    with FakeBroker(1, {metadata.API: (0, newest)}) as broker:
        broker.answers[metadata.API.key] = answer
        with ClusterClient([broker.address], ClientSettings()) as client:
            client.metadata(None)
            client.metadata(None)
        asked = [r for name, _, r in broker.asked if name == "Metadata" and r.topics]
    assert len(asked) == len(list(client.unseen)) == int(is_asked)
    if is_asked:
        assert not asked[0].allow_auto_topic_creation and "kt-asks" in asked[0].topics[0].topic
