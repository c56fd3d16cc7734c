"""The handler passes the question on to the controller, and its answer back."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkatool.broker.handlers.call import Call
from kafkatool.broker.handlers.controlled_shutdown import handle
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@pytest.mark.spec("BRK-34", "CTL-112", "CTL-116")
@pytest.mark.parametrize(("sent", "passed_on"), [(-1, None), (0, 0), (17, 17)])
def test_the_controller_is_asked_and_its_answer_passed_on(sent: int, passed_on: int | None) -> None:
    asked: list[Any] = []

    def controlled_shutdown(broker_id: int, broker_epoch: int | None) -> tuple[ErrorCode, list[TopicPartition]]:
        asked.append((broker_id, broker_epoch))
        return ErrorCode.STALE_BROKER_EPOCH, [TopicPartition("t", 1)]

    controller = SimpleNamespace(controlled_shutdown=controlled_shutdown)
    call = cast(Call, SimpleNamespace(context=SimpleNamespace(controller=controller)))
    answer = handle(ControlledShutdownRequest(broker_id=3, broker_epoch=sent), call)
    assert asked == [(3, passed_on)]
    assert answer == ControlledShutdownResponse(error_code=77, remaining_partitions=[TopicPartition("t", 1)])
