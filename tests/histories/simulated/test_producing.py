"""The simulated producer goes by librdkafka's rules: what goes again, when, in which order, under which number."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.broker.replication.world import Clock
from tests.histories.history import FAIL, INFO, OK
from tests.histories.simulated import producing
from tests.histories.simulated.brokers import Produced
from tests.histories.simulated.producing import Numbering, Producer, Sending

KEY, OTHER = 1, 2
_ANSWER_MS = 100
_REFUSED = ErrorCode.NOT_LEADER_FOR_PARTITION
_TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS
_GAP = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
_UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID


@dataclass(eq=False)
class _Broker:
    """Serves requests at once when they are to come to it, and answers when it is told to."""

    clock: Clock
    alive: bool = True
    frozen: bool = False
    life: int = 1
    sent: list[Produced] = field(default_factory=list)
    """To it, whether it has served them or not."""
    served: list[Produced] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)

    def send(self, request: Callable[[], object], delay_ms: float = 0) -> None:
        self.arrivals.append(self.clock() + delay_ms)
        request()

    def produce(self, sent: Produced) -> None:
        self.served.append(sent)

    @property
    def texts(self) -> list[str]:
        return [one.data.decode() for one in self.sent]

    def answer(self, place: int, code: ErrorCode = ErrorCode.NONE, offset: int = 0) -> None:
        one = self.sent[place]
        one.code, one.offset = code, offset
        one.answered()


class _Field:
    """A producer with two brokers, of which ``leader`` leads."""

    def __init__(self) -> None:
        self.clock, self.leader, self.forgotten = Clock(), 1, 0
        self.brokers = {number: _Broker(self.clock) for number in (1, 2)}
        self.producer = Producer(
            self.brokers,  # type: ignore[arg-type]
            self.clock,
            Random(1),
            lambda key: (self.leader, 0),
            self._forget,
            lambda key, value, numbering, sequence: f"{value}: {numbering.epoch}/{sequence}".encode(),
            self._produced,
        )
        self.producer.begin(Numbering(7, 0))

    def _produced(self, key: int, data: bytes) -> Produced:
        one = Produced(key, data)
        self.brokers[self.leader].sent.append(one)
        return one

    def _forget(self) -> None:
        self.forgotten += 1

    def put(self, *values: int, key: int = KEY) -> list[Sending]:
        return [self.producer.put(key, value) for value in values]

    def step(self, ms: float = 1) -> None:
        self.clock.pass_ms(ms)
        self.producer.step()


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing held up, and each answer waited for as long."""
    monkeypatch.setattr(producing, "held_up_ms", lambda _: 0)
    monkeypatch.setattr(producing, "ANSWER_MS", (_ANSWER_MS,))


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_batches_of_a_key_are_sent_side_by_side_and_served_and_answered_one_by_one() -> None:
    run = _Field()
    first, second = run.put(10, 11)
    run.step()
    assert run.brokers[1].texts == ["10: 0/0", "11: 0/1"]
    assert len(run.brokers[1].served) == 1
    run.brokers[1].answer(0, offset=4)
    assert len(run.brokers[1].served) == 2
    run.step()
    assert [(one.outcome, one.offset) for one in (first, second)] == [(OK, 4), (None, None)]
    run.brokers[1].answer(1, offset=5)
    run.step()
    assert (second.outcome, second.offset) == (OK, 5)


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_what_is_refused_goes_again_later_each_time() -> None:
    run = _Field()
    run.put(10)
    run.step()
    waits = []
    for tried in range(8):
        run.brokers[1].answer(tried, _TOO_FEW)
        run.step(0)
        refused_at = run.clock()
        while len(run.brokers[1].sent) == tried + 1:
            run.step()
        waits.append(run.clock() - refused_at)
    assert run.brokers[1].texts == ["10: 0/0"] * 9
    assert waits[0] < 6 < waits[3] and max(waits) < 52 and waits[-1] > 33, waits


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_what_is_refused_waits_for_what_is_under_way_and_holds_back_what_is_behind_it() -> None:
    run = _Field()
    run.put(10, 11)
    run.step()
    run.brokers[1].answer(0, _TOO_FEW)
    run.put(12)
    for _ in range(20):
        run.step()
    assert len(run.brokers[1].sent) == 2
    run.brokers[1].answer(1, _TOO_FEW)
    for _ in range(20):
        run.step()
    assert run.brokers[1].texts[2:] == ["10: 0/0", "11: 0/1", "12: 0/2"]


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_who_leads_is_asked_again_after_a_refusal_and_after_silence() -> None:
    run = _Field()
    (only,) = run.put(10)
    run.step()
    run.brokers[1].answer(0, _REFUSED)
    run.leader = 2
    for _ in range(10):
        run.step()
    assert run.forgotten == 1 and run.brokers[2].texts == ["10: 0/0"]
    run.leader = 1
    run.step(_ANSWER_MS + 1)
    for _ in range(10):
        run.step()
    assert run.forgotten == 2 and run.brokers[1].texts == ["10: 0/0"] * 2
    run.brokers[2].answer(0, offset=3)
    run.step()
    assert only.outcome is None, "nobody listens on a connection that was given up"


@pytest.mark.spec("HIS-48")
def test_a_connection_keeps_the_order_of_what_is_held_up_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Field()
    held_up = iter((30, 0))
    monkeypatch.setattr(producing, "held_up_ms", lambda _: next(held_up))
    run.put(10, 11)
    run.step()
    assert run.brokers[1].arrivals == [run.clock() + 30] * 2


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_nothing_goes_to_another_leader_before_all_is_answered_by_the_former_one() -> None:
    run = _Field()
    run.put(10)
    run.step()
    run.leader = 2
    run.put(11)
    for _ in range(20):
        run.step()
    assert not run.brokers[2].sent
    run.brokers[1].answer(0, _REFUSED)
    for _ in range(20):
        run.step()
    assert run.brokers[2].texts == ["10: 0/0", "11: 0/1"]


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_each_request_waits_for_its_own_answer_and_where_one_is_missing_none_is_heard() -> None:
    run = _Field()
    (first,) = run.put(10)
    run.step()
    (second,) = run.put(11, key=OTHER)
    run.step(_ANSWER_MS / 2)
    run.brokers[1].answer(0, offset=3)
    run.step(_ANSWER_MS / 2)
    run.put(12)
    run.step()
    run.brokers[1].answer(2, offset=4)
    for _ in range(10):
        run.step(_ANSWER_MS / 10)
    assert run.brokers[1].texts == ["10: 0/0", "11: 0/0", "12: 0/1", "11: 0/0", "12: 0/1"]
    assert (first.outcome, second.outcome) == (OK, None), "what is asked first is answered first"


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_whose_later_batch_is_written_has_the_earlier_ones_written_too_at_no_known_place() -> None:
    run = _Field()
    first, second = run.put(10, 11)
    (other,) = run.put(12, key=OTHER)
    run.step()
    run.brokers[1].answer(0, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    run.brokers[1].answer(1, offset=5)
    run.step()
    assert [(one.outcome, one.offset) for one in (first, second, other)] == [(OK, None), (OK, 5), (None, None)]
    run.step(100)
    assert len(run.brokers[1].sent) == 3


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_a_batch_before_which_one_is_missing_has_all_numbered_anew_once_nothing_is_under_way() -> None:
    run = _Field()
    sent = run.put(10, 11)
    sent += run.put(20, 21, key=OTHER)
    run.step()
    run.brokers[1].answer(0, _TOO_FEW)
    run.brokers[1].answer(1, _GAP)
    run.brokers[1].answer(2, offset=2)
    run.step()
    sent += run.put(12)
    for _ in range(20):
        run.step()
    assert len(run.brokers[1].sent) == 4, "one of the other key is under way still"
    run.brokers[1].answer(3, _REFUSED)
    for _ in range(20):
        run.step()
    assert sorted(run.brokers[1].texts[4:]) == ["10: 1/0", "11: 1/1", "12: 1/2", "21: 1/0"]
    for place in range(4, 8):
        run.brokers[1].answer(place, offset=place)
    run.step()
    assert [one.outcome for one in sent] == [OK] * 5
    run.put(13)
    run.step()
    assert run.brokers[1].texts[-1] == "13: 1/3"


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
@pytest.mark.parametrize("code", [_GAP, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_where_the_oldest_is_refused_nothing_is_vouched_for(code: ErrorCode) -> None:
    run = _Field()
    sent = run.put(10, 11)
    run.step()
    run.brokers[1].answer(0, code)
    run.step()
    assert run.producer.is_fatal and [one.outcome for one in sent] == [INFO, INFO]
    (later,) = run.put(12)
    run.step(100)
    assert len(run.brokers[1].sent) == 2 and later.outcome == FAIL, "it is never sent"


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_who_writes_in_transactions_numbers_nothing_anew() -> None:
    run = _Field()
    run.producer.renumbers = False
    sent = run.put(10, 11)
    run.step()
    run.brokers[1].answer(0, _TOO_FEW)
    run.brokers[1].answer(1, _GAP)
    run.step()
    assert [one.outcome for one in sent] == [INFO, INFO]


@pytest.mark.spec("HIS-48")
@pytest.mark.usefixtures("prompt")
def test_an_epoch_begins_where_the_broker_lost_track_of_who_has_nothing_to_repeat() -> None:
    run = _Field()
    (first,) = run.put(10)
    run.step()
    run.brokers[1].answer(0)
    run.step()
    run.put(11)
    run.step()
    run.brokers[1].answer(1, _UNKNOWN)
    run.step()
    for _ in range(20):
        run.step()
    assert first.outcome == OK and run.brokers[1].texts[2:] == ["11: 1/0"]
    run.brokers[1].answer(2, _TOO_FEW)
    for _ in range(20):
        run.step()
    run.brokers[1].answer(3, _UNKNOWN)
    run.step()
    assert run.producer.is_fatal, "it may have been written before"
