"""Error replies of all APIs: whatever was asked, and in whatever version, there is an answer that can be sent."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkatool.broker.handlers.error_reply import error_reply
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.frames import decode_response, encode_response
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.protocol.apis import APIS
from tests.core.protocol.codec.messages import case_name, messages


@pytest.mark.spec("BRK-17")
@pytest.mark.parametrize("api", APIS.values(), ids=case_name)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_api_has_an_error_reply_in_each_version(api: Api, data: st.DataObject) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    request = data.draw(messages(api.request, version))
    reply = error_reply(api, request, ErrorCode.UNKNOWN_SERVER_ERROR)
    frame = b"".join(bytes(c) for c in encode_response(api, version, 1, reply) if not isinstance(c, tuple))
    decode_response(api, version, frame[4:])
