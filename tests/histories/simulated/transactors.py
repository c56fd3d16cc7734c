"""Transactional processes of the simulation, also such as consume, transform and produce, and what takes over from them.

Who does not know what became of a batch, or of offsets, takes the transaction back and goes on under another epoch
(KIP-360), or ends; an EndTxn without an answer is not asked again while it may be on its way (HIS-9).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkatool.broker.groups.writer import TransactionalProducer
from kafkatool.broker.transactions.transaction import Identity
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.records.batches import TRANSACTIONAL
from tests.histories.history import FAIL, INFO, OK
from tests.histories.simulated.brokers import (
    KEYS,
    OFFSETS,
    OUTPUT,
    PATIENCE_MS,
    TRANSACTIONS,
    Produced,
    partition_of,
)
from tests.histories.simulated.clients import Box, Process, Question, Waits, not_come_to
from tests.histories.simulated.coordination import TRANSACTION_MS, TRANSFORMERS
from tests.histories.simulated.members import CRASHES, Member, to_commit
from tests.histories.simulated.producing import Numbering

_AGAIN_MS: Final = 10.0
_LEFT_OPEN, _CUT_SHORT, _ABORTED = 0.03, 0.06, 0.16  # of transactions; the second ends while its commit is asked for
_DOUBTED: Final = 0.06  # of transactions
_DOUBTED_MS: Final = (100, 200, 300)
_CUT_SHORT_MS: Final = (0, 30, 100, 300)
_SCARED: Final = 0.5  # of those that do not know what became of something: they end
_INHERITED: Final = 0.5  # of transactional ids
_PATIENCE_MS: Final = (150.0, PATIENCE_MS)  # for what is sent, one batch after the other
_LASTS_MS: Final = (0, 0, 0, 20, 100)  # until it is ended
_PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_SOURCES: Final = 4  # of a transaction


class Transactor(Process):
    """One process with a transactional id: sends and polls between beginning and end."""

    _has_identity = False

    def succeed(self, former: Process) -> None:
        """Take its transactional id over, so that it is fenced; else nobody does, and what it left open times out."""
        if isinstance(former, Transactor) and (former.is_doubted or self._chance.random() < _INHERITED):
            self.transactional_id = former.transactional_id

    def _begin(self) -> None:
        super()._begin()
        self._is_unsettled = False
        self._producer.renumbers = False

    transactional_id = ""

    # --- operations -----------------------------------------------------------------------------------------------

    def _operate(self) -> Waits:
        while not self._has_identity and self.is_wanted:
            yield from self._take_identity()
        if self.is_wanted:
            yield from self._do()

    def _do(self) -> Waits:
        asked: list[list[Any]] = []
        for _ in range(self._chance.randint(1, 4)):
            if self._chance.random() < 0.35:
                asked.append(["poll"])
            else:
                asked.append(["send", self._chance.choice(KEYS), self._values.next()])
        yield from self._transact(asked)

    def _transact(self, asked: list[list[Any]], polled: Mapping[int, Any] | None = None) -> Waits:
        self._write("invoke", "txn", asked)
        self._added: set[TopicPartition] = set()
        self._has_asked = False
        self._firsts: dict[int, int] = {}
        told: list[list[Any]] = []
        is_well = True
        while is_well and len(told) < len(asked):
            match asked[len(told)][0]:
                case "poll":
                    yield
                    runs = self._poll() if polled is None else polled
                    for key, pairs in runs.items():
                        self._firsts.setdefault(key, pairs[0][0])
                    told.append(["poll", runs])
                case "offsets":
                    told.append((yield from self._commit()))
                    is_well = told[-1][2] == OK
                case _:
                    is_well = yield from self._send_next(asked, told)
        told += [not_come_to(part) for part in asked[len(told) :]]
        if is_well and not self.over:
            yield from self._linger()
        drawn = self._chance.random()
        if self.over or drawn < _LEFT_OPEN:
            kind, ended_at, self.over = FAIL, None, True
        elif not is_well or drawn > 1 - _ABORTED:
            kind, ended_at = FAIL, None
            yield from self._take_back()
        else:
            ended_at = self._writer.now()
            kind = (yield from self._commit_it(is_cut_short=drawn < _CUT_SHORT)) if self._has_asked else OK
            self.over |= kind == INFO
        if kind == FAIL and not self.over:
            self._seek_back()
        more = {} if ended_at is None else {"ended_at": ended_at}
        self._write(kind, "txn", told, **more, **({"end": True} if self.over else {}))

    def _linger(self) -> Waits:
        """Keep the transaction open for a while; who does so for long is taken for dead, and goes on beside its heir."""
        if self._chance.random() < _DOUBTED:
            self.is_doubted = True
            yield from self._wait(self._chance.choice(_DOUBTED_MS))
        else:
            yield from self._wait(self._chance.choice(_LASTS_MS))

    def _send_next(self, asked: list[list[Any]], told: list[list[Any]]) -> Waits:
        """Do the sends that come next, side by side, and tell whether all are acknowledged."""
        count = 1
        while len(told) + count < len(asked) and asked[len(told) + count][0] == "send":
            count += 1
        sends = asked[len(told) : len(told) + count]
        if not (yield from self._add({partition_of(part[1]) for part in sends})):
            return False
        told += yield from self._send(sends, self._chance.choice(_PATIENCE_MS))
        is_well = all(part[3] == OK for part in told[-count:])
        self._is_unsettled |= not is_well
        return is_well

    def _seek_back(self) -> None:
        """Go on where it was before the transaction that failed."""
        self._positions.update(self._firsts)

    def _produced(self, key: int, data: bytes) -> Produced:
        return Produced(key, data, self.transactional_id)

    def _batch(
        self, key: int, value: int, numbering: Numbering, sequence: int, attributes: int = TRANSACTIONAL
    ) -> bytes:
        return super()._batch(key, value, numbering, sequence, attributes)

    # --- the coordinator ------------------------------------------------------------------------------------------

    @property
    def _identity(self) -> Identity:
        return Identity(*self._producer.numbering)

    def _take_identity(self) -> Waits:
        """Ask for a producer id and an epoch; who has one already gets the next epoch, or is fenced."""
        self.transactional_id = self.transactional_id or f"process-{self.number}"
        expected = self._identity if self._has_identity else None
        box: Box = yield from self._ask_coordinator(
            TRANSACTIONS,
            lambda coordination, box: coordination.transactions.give_identity(
                self.transactional_id, TRANSACTION_MS, expected, lambda code, given: box.put((code, given))
            ),
        )
        code, given = box.answer or (ErrorCode.COORDINATOR_NOT_AVAILABLE, Identity(-1, -1))
        if code is ErrorCode.NONE:
            self._producer.begin(Numbering(*given))
            self._has_identity, self._is_unsettled = True, False
        elif code in _PASSING:
            yield from self._wait(_AGAIN_MS)
        else:
            self.over = True

    def _add(self, partitions: Iterable[TopicPartition]) -> Waits:
        """Have partitions put into the transaction, and tell whether they are."""
        wanted = frozenset(partitions) - self._added
        if not wanted:
            return True
        self._has_asked = True
        identity = self._identity
        code = yield from self._insist(
            lambda coordination, box: coordination.transactions.add_partitions(
                self.transactional_id, identity, wanted, box.put
            )
        )
        if code is ErrorCode.NONE:
            self._added |= wanted
        return code is ErrorCode.NONE

    def _commit_it(self, *, is_cut_short: bool) -> Waits:
        """Ask for the commit; INFO: what became of it is not known."""
        if is_cut_short:
            identity, state = self._identity, self._controller.state(TRANSACTIONS)[0]
            if state.leader is not None and self._brokers[state.leader].alive:
                broker = self._brokers[state.leader]
                broker.send(
                    lambda: broker.coordination.transactions.end(
                        self.transactional_id, identity, committed=True, done=_nobody
                    ),
                    self._chance.choice(_CUT_SHORT_MS),
                )
            return INFO
        code = yield from self._end(committed=True)
        return OK if code is ErrorCode.NONE else INFO

    def _take_back(self) -> Waits:
        """Abort; it is over with who gets no answer, or may not go on."""
        code = ErrorCode.NONE
        if self._has_asked:
            code = yield from self._end(committed=False)
        if code is not ErrorCode.NONE:
            self.over = True
        elif self._is_unsettled:
            self.over = self._chance.random() < _SCARED
            deadline = self._clock() + PATIENCE_MS
            while self._is_unsettled and not self.over:
                yield from self._take_identity()
                self.over |= self._clock() > deadline

    def _end(self, *, committed: bool) -> Waits:
        identity = self._identity
        return (
            yield from self._insist(
                lambda coordination, box: coordination.transactions.end(
                    self.transactional_id, identity, committed=committed, done=box.put
                )
            )
        )

    def _insist(self, question: Question) -> Waits:
        """Ask until the answer says more than to come again; None: one may be on its way, or there is nobody to ask."""
        deadline = self._clock() + PATIENCE_MS
        while self._clock() < deadline:
            box: Box = yield from self._ask_coordinator(TRANSACTIONS, question)
            if box.is_late:
                return None
            if box.answer is not None and box.answer not in _PASSING:
                return box.answer
            yield from self._wait(_AGAIN_MS)
        return None


class Transformer(Transactor, Member):
    """One member whose transactions read values, write one for each, and commit the offsets of what they read."""

    group = TRANSFORMERS

    def _do(self) -> Waits:
        if self._chance.random() < CRASHES:
            self._crash()
            return
        until = self._clock() + 40
        while not (runs := self._polled_some()) and self._clock() < until:
            yield
        outputs = [
            ["send", OUTPUT, self._values.next(), [key, offset]] for key, pairs in runs.items() for offset, _ in pairs
        ]
        yield from self._transact([["poll"], *outputs, ["offsets", None]], runs)

    def _polled_some(self) -> dict[int, list[tuple[int, int | None]]]:
        """Poll, and leave what is too much for one transaction to the next."""
        found, left = self._poll(), _SOURCES
        runs = {}
        for key, pairs in found.items():
            if taken := pairs[:left]:
                runs[key] = taken
                self._owned[key] = self._polled[key] = taken[-1][0] + 1
            else:
                self._owned[key] = pairs[0][0]
                del self._polled[key]
            left -= len(taken)
        return runs

    def _commit(self) -> Waits:
        offsets = {key: to for key, to in self._polled.items() if key in self._owned}
        self._polled = {}
        if not offsets:
            return ["offsets", {}, OK]
        if not (yield from self._add({partition_of(OFFSETS)})):
            return ["offsets", offsets, INFO]
        wanted = {partition_of(key): to_commit(to) for key, to in offsets.items()}
        member, generation = self._member, self._generation
        producer = TransactionalProducer(self.transactional_id, *self._identity)
        told = yield from self._ask_group(
            lambda groups, box: groups.commit_in_transaction(
                self.group, producer, member, None, generation, wanted, box.put
            )
        )
        if told is None or any(code is not ErrorCode.NONE for code in told.values()):
            self._is_unsettled = True
            return ["offsets", offsets, INFO]
        self._committed_in = generation
        return ["offsets", offsets, OK]

    def _seek_back(self) -> None:
        self._polled.clear()
        self._owned.update({key: at for key, at in self._firsts.items() if key in self._owned})


def _nobody(_code: ErrorCode) -> None:
    """The answer comes to nobody."""
