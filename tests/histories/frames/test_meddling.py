"""What a run does to requests at random, between lines of its history that say so."""

import random
import threading
from pathlib import Path

import pytest

from tests.histories import nemesis
from tests.histories.analyser.notation import HEADER
from tests.histories.frames.doors import Doors
from tests.histories.frames.record import Record, read_frames
from tests.histories.frames.test_proxy import Client, Stub
from tests.histories.history import read_file
from tests.histories.writer import HistoryWriter
from tests.serving import serving


@pytest.mark.spec("HIS-45", "HIS-46")
@pytest.mark.parametrize(("seed", "done"), [(4, "deserted"), (0, "lost"), (1, "held")])
def test_a_request_is_meddled_with_between_two_fault_lines(seed: int, done: str, tmp_path: Path) -> None:
    stub, doors, stop = Stub(), Doors(Record(tmp_path / "frames.jsonl")), threading.Event()
    file = tmp_path / "history.jsonl"
    with serving(stub.serve) as port, HistoryWriter(file, HEADER) as writer:
        door = doors.make(1, port)
        with Client(door.port, "rdkafka") as client:
            client.ask(1)
            assert client.hear() == 1
        over = threading.Thread(target=nemesis.meddle, args=(doors, random.Random(seed), 7, writer, stop))
        over.start()
        while over.is_alive():  # as clients do: what gets no answer is asked again, over another connection
            with Client(door.port, "rdkafka") as client:
                client.ask(2)
                client.hear()
        doors.close()
    told = [line["value"] for line in read_file(file).faults]
    assert [(step["step"], step["begins"]) for step in told] == [("frame 7", True), ("frame 7", False)]
    assert told[1]["met"]
    assert "Heartbeat 1 of rdkafka" in told[0]["faults"][0]
    assert done in [line["what"] for line in read_frames(tmp_path / "frames.jsonl")]
    assert doors.rules.spent
