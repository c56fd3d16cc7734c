"""Error replies of all APIs: whatever was asked, and in whatever version, there is an answer that can be sent."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkatool.broker.handlers.error_reply import error_reply
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_response, encode_response
from kafkatool.core.protocol.messages import delete_topics, describe_groups, metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.protocol.apis import APIS
from tests.core.protocol.codec.messages import case_name, messages


@pytest.mark.spec("BRK-17")
@pytest.mark.parametrize("api", APIS.values(), ids=case_name)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_api_has_an_error_reply_in_each_version(api: Api, data: st.DataObject) -> None:
    for version in range(api.min_version, api.max_version + 1):
        request = data.draw(messages(api.request, version))
        reply = error_reply(api.response, request, ErrorCode.UNKNOWN_SERVER_ERROR)
        assert set(_codes_of(reply)) <= {-1}, "nothing of it looks well done"
        frame = b"".join(bytes(c) for c in encode_response(api, version, 1, reply) if not isinstance(c, tuple))
        decode_response(api, version, frame[4:])


def _codes_of(answer: Any) -> list[int]:
    """Return every code in the answer, at its top and below."""
    found = []
    for one in fields(answer):
        value = getattr(answer, one.name)
        if one.name == "error_code":
            found.append(value)
        for part in value if isinstance(value, list) else []:
            found += _codes_of(part) if is_dataclass(part) else []
    return found


@pytest.mark.spec("BRK-17")
def test_what_is_named_differently_in_the_answer_is_answered_too() -> None:
    code = ErrorCode.NOT_CONTROLLER
    deletion = delete_topics.DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1)
    assert error_reply(delete_topics.DeleteTopicsResponse, deletion, code).topics == [
        delete_topics.DeleteTopicsResponseTopic(name=name, error_code=code) for name in ("a", "b")
    ]
    groups = describe_groups.DescribeGroupsRequest(groups=["g"])
    assert error_reply(describe_groups.DescribeGroupsResponse, groups, code).groups == [
        describe_groups.DescribedGroup(group_id="g", error_code=code, members=[])
    ]


@pytest.mark.spec("BRK-17")
@pytest.mark.parametrize("version", [10, 11, 12])
def test_who_asks_by_id_alone_is_answered_by_it(version: int) -> None:
    """Before version 12 the answer has no null for the name."""
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic=None, topic_id=bytes(15) + b"\x07")])
    reply = error_reply(metadata.MetadataResponse, asked, ErrorCode.UNKNOWN_SERVER_ERROR)
    frame = b"".join(bytes(c) for c in encode_response(metadata.API, version, 1, reply) if not isinstance(c, tuple))
    _, back = decode_response(metadata.API, version, frame[4:])
    assert [(t.error_code, t.topic, t.topic_id) for t in back.topics] == [(-1, "", bytes(15) + b"\x07")]


def test_what_carries_no_error_is_not_made_up() -> None:
    asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(topic="t")])
    reply = error_reply(metadata.MetadataResponse, asked, ErrorCode.LEADER_NOT_AVAILABLE)
    assert reply.brokers == []
    assert [(t.topic, t.error_code) for t in reply.topics] == [("t", ErrorCode.LEADER_NOT_AVAILABLE)]
