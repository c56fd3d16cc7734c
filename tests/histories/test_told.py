"""What the last phase is told, and what it is not: each answer with what was asked, and a fail where there was none."""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kafkatool.core.errors import BrokerUnreachableError
from tests.histories.analyser.verdict import judge
from tests.histories.history import FAIL, OK
from tests.histories.test_final import Played, X, Y, judged


@pytest.mark.spec("HIS-8", "HIS-12", "HIS-20", "HIS-43")
@pytest.mark.parametrize("in_vain", [1, 2, 3])
@pytest.mark.parametrize("raised", [RuntimeError, OSError, BrokerUnreachableError, KafkaException])
def test_a_question_that_gets_no_answer_fails_and_the_others_are_asked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: type[Exception], in_vain: int
) -> None:
    """Batches are asked for three times."""
    answers: dict[str, list[Any]] = {
        "committed": [raised("away"), {X: None}],
        "batches": [*[raised("away")] * in_vain, {X: [], Y: []}],
    }

    def next_of(f: str) -> Any:
        answer = answers[f].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    history = judged(Played({X: 1, Y: 1}, {X: 1, Y: 1}, {X: 1, Y: 2}), tmp_path, monkeypatch, next_of)
    told = [(one.f, one.type) for one in history.operations if one.f in answers]
    of_batches = [*[("batches", FAIL)] * in_vain, ("batches", OK)][:3]
    assert told == [("committed", FAIL), ("committed", OK), *of_batches]
    assert not judge(history).kinds()


@pytest.mark.spec("HIS-12", "HIS-43")
def test_facts_are_told_with_their_isolation_and_their_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [0, 0, 7, 0, 0, False, False]
    answers = {"committed": {X: 1, Y: None}, "batches": {X: [batch], Y: [batch]}}
    history = judged(Played({X: 1, Y: 1}), tmp_path, monkeypatch, answers.__getitem__)
    facts_told = {one.f: one for one in history.operations if one.f in ("ends", "final", "committed", "batches")}
    assert facts_told["ends"].value == {X: [0, 1], Y: [0, 1]}
    assert facts_told["ends"].isolation == "read_uncommitted"
    assert (facts_told["committed"].value, facts_told["committed"].group) == ({X: 1, Y: None}, "g")
    assert facts_told["final"].value == {X: 1, Y: 1}
    assert facts_told["batches"].value == {X: [batch], Y: [batch]}
    assert {one.group for one in history.operations if one.f != "committed"} == {None}
