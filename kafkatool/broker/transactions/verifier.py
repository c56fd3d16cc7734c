"""The questions of a leader to the coordinators of transactions, before a batch opens one (TXN-72, 77 to 79)."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafkatool.broker.metadata_cache import MetadataCache
from kafkatool.broker.replication.leading.verified_appends import Answer, Question
from kafkatool.broker.runtime.timer import Timer, TimerTask
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.transactions.channels import Channels, MakeChannels, Peer
from kafkatool.core.model.topic_names import TRANSACTION_TOPIC
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages import add_offsets_to_txn, add_partitions_to_txn
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_API = add_partitions_to_txn.API
_VERIFIES = 4  # first version that asks without adding


@dataclass(slots=True, eq=False)
class _Asked:
    """A question on its way. ``tell`` may be called more than once: the first answer counts."""

    question: Question
    _done: Callable[[Answer], None]
    timer_task: TimerTask | None = None
    _once: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, answer: Answer | ErrorCode) -> None:
        if not self._once.acquire(blocking=False):
            return
        if self.timer_task is not None:
            self.timer_task.cancel()
        if isinstance(answer, ErrorCode):
            answer = dict.fromkeys(self.question.partitions, answer)
        # A partition that the answer leaves out is not known to be in the transaction.
        self._done({p: answer.get(p, ErrorCode.UNKNOWN_SERVER_ERROR) for p in self.question.partitions})


class Verifier:
    """The asker. Questions to one coordinator share a connection and a request; no thread of a client waits."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        metadata_cache: MetadataCache,
        timer: Timer,
        *,
        partition_of: Callable[[str], int],
        ask_here: Callable[[Question], Answer],
        channels: MakeChannels | None = None,
    ) -> None:
        """Take ``ask_here``: the coordinator of this broker."""
        self._broker_id = broker_id
        self._metadata_cache = metadata_cache
        self._timer = timer
        self._partition_of = partition_of
        self._ask_here = ask_here
        self._listener = config.inter_broker_listener_name
        self._longest_ms = config.request_timeout_ms
        self._channels: Channels[_Asked] = (channels or Channels)(
            metadata_cache,
            self._listener,
            f"broker-{broker_id}-txn-verifier",
            config.request_timeout_ms,
            config.inter_broker_security,
            lambda queue: (list(queue), []),
            self._exchange,
            lambda _, unanswered: _tell_all(unanswered, ErrorCode.NETWORK_EXCEPTION),
        )

    def ask(self, question: Question, timeout_ms: float, done: Callable[[Answer], None]) -> None:
        """Have ``done`` told, once, on this thread or another."""
        partition = TopicPartition(TRANSACTION_TOPIC, self._partition_of(question.transactional_id))
        leader = self._metadata_cache.leader_endpoint(partition, self._listener)
        asked = _Asked(question, done)
        if leader is None:
            asked.tell(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif leader[0] == self._broker_id:
            asked.tell(self._ask_here(question))
        else:
            limit_ms = min(timeout_ms, self._longest_ms)
            asked.timer_task = self._timer.add(limit_ms, lambda: asked.tell(ErrorCode.REQUEST_TIMED_OUT))
            if self._takes_its_turn(asked):
                self._channels.put(leader[0], asked)

    def _takes_its_turn(self, asked: _Asked) -> bool:
        """Answer what a newer question of the same transactional id ends, be that others or this one (TXN-78).

        Questions of one epoch about different partitions go together: a client may commit offsets over one connection and
        produce over another, as aiokafka and kafka-python do.
        """
        new = asked.question
        is_fenced = False

        def ends(other: _Asked) -> bool:
            nonlocal is_fenced
            old = other.question
            if old.transactional_id != new.transactional_id:
                return False
            if old.producer_id != new.producer_id:
                return True  # their epochs tell nothing of which came first: the coordinator will
            is_fenced = is_fenced or old.producer_epoch > new.producer_epoch
            is_same = old.producer_epoch == new.producer_epoch
            return old.producer_epoch < new.producer_epoch or (
                is_same and not set(old.partitions).isdisjoint(new.partitions)
            )

        for other in self._channels.drop(ends):
            old = other.question
            was_fenced = old.producer_id == new.producer_id and old.producer_epoch < new.producer_epoch
            other.tell(ErrorCode.PRODUCER_FENCED if was_fenced else ErrorCode.NETWORK_EXCEPTION)
        if is_fenced:
            asked.tell(ErrorCode.PRODUCER_FENCED)
        return not is_fenced

    def shutdown(self) -> None:
        """Answer what waits, so that the clients ask the next leader."""
        _tell_all(self._channels.drop(lambda _: True), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._channels.close()

    def _exchange(self, _broker_id: int, peer: Peer, asked: Sequence[_Asked]) -> None:
        version = peer.newest(_API)
        if version >= _VERIFIES:
            self._verify(peer, version, asked)
        else:  # of Kafka before 3.6
            for one in asked:
                one.tell(_add(peer, version, one.question))

    def _verify(self, peer: Peer, version: int, asked: Sequence[_Asked]) -> None:
        wanted: dict[tuple[str, int, int], list[TopicPartition]] = {}
        for one in asked:
            wanted.setdefault(one.question[:3], []).extend(one.question.partitions)
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactions=[
                add_partitions_to_txn.AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    verify_only=True,
                    topics=_topics(partitions),
                )
                for (transactional_id, producer_id, producer_epoch), partitions in wanted.items()
            ]
        )
        response = peer.send(_API, version, request)
        answers = {t.transactional_id: _codes(t.topics) for t in response.transactions}
        for one in asked:
            if response.error_code != ErrorCode.NONE:
                one.tell(dict.fromkeys(one.question.partitions, response.error_code))
            else:
                one.tell(answers.get(one.question.transactional_id, {}))


def _add(peer: Peer, version: int, question: Question) -> Answer:
    """Ask by adding what should be in already, which writes nothing then (TXN-79)."""
    if question.group is not None:
        answer = peer.send(
            add_offsets_to_txn.API,
            peer.newest(add_offsets_to_txn.API),
            add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=question.transactional_id,
                producer_id=question.producer_id,
                producer_epoch=question.producer_epoch,
                group_id=question.group,
            ),
        )
        return dict.fromkeys(question.partitions, answer.error_code)
    response = peer.send(
        _API,
        version,
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            transactional_id=question.transactional_id,
            producer_id=question.producer_id,
            producer_epoch=question.producer_epoch,
            topics=_topics(question.partitions),
        ),
    )
    return _codes(response.topics)


def _topics(asked: Sequence[TopicPartition]) -> list[add_partitions_to_txn.AddPartitionsToTxnTopic]:
    numbers: dict[str, list[int]] = {}
    for tp in asked:
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return [
        add_partitions_to_txn.AddPartitionsToTxnTopic(topic=name, partitions=partitions)
        for name, partitions in numbers.items()
    ]


def _codes(topics: Sequence[add_partitions_to_txn.AddPartitionsToTxnResponseTopic]) -> Answer:
    return {TopicPartition(t.topic, p.partition): p.error_code for t in topics for p in t.partitions}


def _tell_all(asked: Sequence[_Asked], code: ErrorCode) -> None:
    for one in asked:
        one.tell(code)
