"""What a broker writes to state-change.log: every line is of a form that the log merger knows."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrRequest
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from kafkatool.core.protocol.messages.update_metadata import UpdateMetadataRequest
from kafkatool.core.statelog.lines.grammar import parse_head, partition_spans
from tests.broker.replication.world import TP, Clock, World, metadata_request, role, world
from tests.commands.logs.tools import run, without_spark

U0, GONE = TopicPartition("u", 0), TopicPartition("my-topic.x_1", 12)
_INSTRUCTION = re.compile(
    r"\] (Received LeaderAndIsr|Cached|Deleted|Handling)(?= request Part| leader info| partition| stop replica)"
    r"(?:.*\(delete=(true|false)\))?.* partition (\S+-\d+)(?: |$)"
)
LIVE = [LeaderAndIsrLiveLeader(broker_id=2, host="127.0.0.1", port=1)]


def stop(broker: World, *partitions: TopicPartition, delete: bool, controller_epoch: int = 3) -> None:
    request = StopReplicaRequest(
        controller_id=9, controller_epoch=controller_epoch, delete_partitions=delete, partitions=list(partitions)
    )
    broker.manager.control.stop_replicas(request)


def live_through_everything(broker: World) -> None:
    """Bring about each outcome of each control request once."""
    broker.leader_and_isr(role(TP, 1, 0, [1], [1, 2]), role(U0, 2, 0, [2], [2, 1]), controller_epoch=2, live=LIVE)
    broker.leader_and_isr(role(TP, 1, 0, [1], [1, 2]), controller_epoch=3)  # an old leader epoch
    broker.leader_and_isr(role(TP, 1, 1, [1], [1, 2]), controller_epoch=3)  # leads already
    broker.leader_and_isr(role(U0, 2, 1, [2], [2, 1]), controller_epoch=3, live=LIVE)
    broker.leader_and_isr(role(GONE, 2, 0, [2], [2, 3]), controller_epoch=3)  # not assigned here
    broker.leader_and_isr(role(GONE, 7, 0, [7], [7, 1]), controller_epoch=3)  # an unknown leader
    broker.leader_and_isr(role(TP, 1, 2, [1], [1, 2]), controller_epoch=1)  # an old controller
    broker.manager.control.update_metadata(
        metadata_request([TP, GONE], {1: 9001}, 1, controller_epoch=3), correlation_id=4
    )
    broker.manager.control.update_metadata(metadata_request([TP], {1: 9001}, -2, controller_epoch=3), correlation_id=5)
    broker.manager.control.update_metadata(metadata_request([TP], {1: 9001}, 1, controller_epoch=1), correlation_id=6)
    broker.manager.control.shutting_down = True
    broker.leader_and_isr(role(U0, 2, 2, [2], [2, 1]), controller_epoch=3, live=LIVE)
    stop(broker, TP, delete=False)
    stop(broker, TP, TopicPartition("never", 3), delete=True)
    stop(broker, U0, delete=True, controller_epoch=1)
    broker.fail_disk(*broker.logs.live_dirs)
    broker.leader_and_isr(role(U0, 1, 3, [1], [1]), role(TopicPartition("v", 0), 1, 0, [1], [1]), controller_epoch=3)
    stop(broker, U0, delete=True)


@pytest.mark.spec("CTL-23", "CTL-117")
def test_every_instruction_that_a_broker_receives_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition by partition, also one that is refused; but of requests of an old controller's other than LeaderAndIsr one
    line tells, as in Kafka."""
    expected: Counter[str] = Counter()
    epochs: list[int] = []

    def told(request: Any, refused: bool) -> list[str]:
        match request:
            case LeaderAndIsrRequest():
                return [f"Received LeaderAndIsr {s.topic}-{s.partition}" for s in request.partition_states]
            case _ if refused:
                return ["from an old controller"]
            case UpdateMetadataRequest():
                return [
                    f"{'Deleted' if s.leader == -2 else 'Cached'} {s.topic}-{s.partition}"
                    for s in request.partition_states
                ]
            case _:
                delete = str(request.delete_partitions).lower()
                return [f"Handling {delete} {topic}-{number}" for topic, number in request.partitions]

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(request: Any, *more: Any, **named: Any) -> Any:
            epochs.append(request.controller_epoch)
            expected.update(told(request, epochs[-1] < max(epochs)))
            return call(request, *more, **named)

        return called

    with world(tmp_path, clock=Clock()) as broker:
        control = broker.manager.control
        for name in ("become_leader_or_follower", "update_metadata", "stop_replicas"):
            monkeypatch.setattr(control, name, noted(getattr(control, name)))
        live_through_everything(broker)
        written = [message for _, message in broker.lines.written]
    found: Counter[str] = Counter()
    for message in written:
        if instruction := _INSTRUCTION.search(message):
            assert instruction[1] == "Handling" or re.search(r" controller 9 epoch [123] ", message), message
            found[" ".join(part for part in instruction.groups() if part)] += 1
        elif "from an old controller" in message:
            found["from an old controller"] += 1
    assert found == expected
    assert len(expected) > 10 and expected["from an old controller"] == 2


@pytest.mark.spec("CTL-23", "CTL-117")
def test_every_line_of_a_brokers_life_is_of_a_known_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with world(tmp_path, clock=Clock()) as broker:
        live_through_everything(broker)
        written = broker.lines.written
    forms = set()
    lines = [f"[2016-01-01 10:00:00,000] {level} {message} (state.change.logger)" for level, message in written]
    for line, (_, message) in zip(lines, written, strict=True):
        head = parse_head(line)
        assert head is not None and head.actor is not None, message
        assert head.form is not None and head.form.id[0] == "B", message
        assert head.actor.id == 1 or head.actor.kind == "broker", message
        forms.add(head.form)
        if "controller epoch" not in message:
            assert partition_spans(head.body) or "log dir" in message, message
    assert len(forms) >= 15
    assert {level for level, _ in written} == {"TRACE", "INFO", "WARN", "ERROR"}
    file = tmp_path / "state-change.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    without_spark(monkeypatch)
    merged = run("merge", "--strict", "--logs", file)
    assert (merged.exit_code, sorted(merged.stdout.splitlines())) == (0, sorted(lines)), merged.stderr
