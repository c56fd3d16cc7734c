"""The fetcher: a thread that truncates, fetches and appends for all partitions that follow one leader (BRK-65 to 75).

A round costs what changed, not what is followed: a partition is looked at when it was added, taken, stepped with, or
while it waits; all others are in the fetch session as they were.
Control requests add and take partitions at any time; the thread never holds its lock while it asks the leader or
writes a log. Whether an answer still counts is decided where it is applied: the object of the partition is still
the one asked for, and the partition still follows in that epoch (BRK-67).
Source: Kafka 2.3.1 server/AbstractFetcherThread.scala.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.follow import Follow, FollowStep
from kafkatool.broker.replication.following.follower_session import FollowerSession
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint
from kafkatool.broker.replication.partition.replication_quota import ReplicationQuota
from kafkatool.broker.runtime.refused_logins import tell_of_refused_login
from kafkatool.broker.runtime.timer import monotonic_ms
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.errors import (
    BrokerUnreachableError,
    LoginRefusedError,
    OutOfResourcesError,
    ProtocolError,
    StorageError,
)
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequestPartition

log = logging.getLogger(__name__)


class ReplicaFetcher:
    """The fetcher of some partitions of one leader. Thread-safe but for ``run_once``, which is the thread's."""

    def __init__(
        self,
        name: str,
        config: BrokerConfig,
        leader: LeaderEndpoint,
        quota: ReplicationQuota,
        *,
        check_delayed: Callable[[TopicPartition], None],
        on_failed: Callable[[TopicPartition], None],
        keep_log_starts: Callable[[], None],
        clock_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """Tell ``check_delayed`` of raised high watermarks, ``on_failed`` of those given up until LeaderAndIsr (BRK-72).

        ``keep_log_starts`` brings raised log starts to the disk: the leader is told of them only afterwards (BRK-141).
        """
        self.leader = leader
        self.requests = 0  # counters of BRK-157
        self.received_bytes = 0
        self._config = config
        self._quota = quota
        self._on_failed = on_failed
        self._keep_log_starts = keep_log_starts
        self._clock_ms = clock_ms
        self._steps = Follow(config, leader, check_delayed)
        self._changed = threading.Condition()
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._to_place: dict[TopicPartition, None] = {}  # those about which something changed; guarded as well
        self._waiting: dict[TopicPartition, FollowedPartition] = {}  # truncating, delayed, throttled; the thread's
        self._session = FollowerSession(sessions=leader.knows_sessions)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- called by control requests -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fetch."""
        self._thread.start()

    def add(self, partitions: Iterable[FollowedPartition]) -> None:
        """Follow them; one that is followed in the same epoch already goes on as it was."""
        with self._changed:
            for followed in partitions:
                current = self._followed.get(followed.partition.tp)
                if current is None or current.leader_epoch != followed.leader_epoch:
                    followed.max_bytes = self._config.replica_fetch_max_bytes
                    self._followed[followed.partition.tp] = followed
                    self._to_place[followed.partition.tp] = None
            self._changed.notify()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow them no longer: an answer under way for them is not used."""
        with self._changed:
            for topic_partition in partitions:
                if self._followed.pop(topic_partition, None) is not None:
                    self._to_place[topic_partition] = None

    def take_all(self) -> list[FollowedPartition]:
        """Follow nothing any longer; return what was followed."""
        with self._changed:
            followed = list(self._followed.values())
        self.remove([one.partition.tp for one in followed])
        return followed

    @property
    def idle(self) -> bool:
        """Tell whether it follows nothing."""
        return not self._followed

    @property
    def alive(self) -> bool:
        """Tell whether its thread runs."""
        return self._thread.is_alive()

    def lags(self) -> dict[TopicPartition, int | None]:
        """Return how far behind each followed partition is (BRK-157)."""
        with self._changed:
            return {tp: followed.lag for tp, followed in self._followed.items()}

    def stop(self) -> None:
        """End soon, breaking off a request under way. Does not wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.leader.close()

    def join(self, timeout_ms: float) -> None:
        """Wait for the thread to end."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_ms / 1000)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                if not self.run_once():
                    self._wait()
            except Exception:  # the thread's top: a fault here must not end the replication of all its partitions
                log.exception("fetcher %s failed; going on", self._thread.name)
                self._delay_all()
        self.leader.disconnect()

    def run_once(self) -> bool:
        """Run one round: truncate what has to be, then fetch once. False: nothing was due."""
        try:
            self._place()
            truncated = self._truncate_due()
            self._place()
            return self._fetch() or truncated
        except (BrokerUnreachableError, ProtocolError) as e:
            if isinstance(e, LoginRefusedError):
                tell_of_refused_login(self.leader.own_id, e)
            elif not self._stopping:
                log.warning("%s: %s", self._thread.name, e)
            self.leader.disconnect()
            self._session.start_over()
            self._delay_all()
            return True

    def _wait(self) -> None:
        """Wait until a partition is added, the earliest delay is over, or the backoff."""
        with self._changed:
            now_ms = self._clock_ms()
            delays = [f.delayed_until_ms - now_ms for f in self._waiting.values()]
            wait_ms = min([self._config.replica_fetch_backoff_ms, *(d for d in delays if d > 0)])
            if not self._stopping and not self._to_place:
                self._changed.wait(max(wait_ms, 1) / 1000)

    def _place(self) -> None:
        """Put partitions that changed, or wait, into the fetch session or take them out."""
        if not (self._to_place or self._waiting or self._quota.limited):
            return
        with self._changed:
            changed, self._to_place = self._to_place, {}
        if self._waiting:
            changed = dict.fromkeys(self._waiting) | changed
        if self._quota.limited:
            changed = dict.fromkeys(self._session.asked) | changed
        now_ms = self._clock_ms()
        for topic_partition in changed:
            followed = self._followed.get(topic_partition)
            if followed is None:
                self._waiting.pop(topic_partition, None)
                self._session.drop(topic_partition)
            elif (
                followed.truncating
                or followed.delayed_until_ms > now_ms
                or self._quota.holds_back(followed.partition, in_sync=followed.lag == 0)
            ):
                self._waiting[topic_partition] = followed
                self._session.drop(topic_partition)
            else:
                followed.delayed_until_ms = 0.0
                self._waiting.pop(topic_partition, None)
                self._session.want(followed)

    def _truncate_due(self) -> bool:
        if not self._waiting:
            return False
        now_ms = self._clock_ms()
        due = {tp: f for tp, f in self._waiting.items() if f.truncating and f.delayed_until_ms <= now_ms}
        questions: dict[TopicPartition, OffsetForLeaderEpochRequestPartition] = {}
        for topic_partition, followed in due.items():
            epoch = followed.partition.log.leader_epochs.latest if self.leader.knows_epochs else None
            if epoch is None:
                self._step(followed, partial(self._steps.truncate_to_high_watermark, followed))
                continue
            questions[topic_partition] = OffsetForLeaderEpochRequestPartition(
                partition=topic_partition.partition, current_leader_epoch=followed.leader_epoch, leader_epoch=epoch
            )
        if not questions:
            return bool(due)
        answers = self.leader.epoch_ends(questions.items())
        for topic_partition in questions:
            followed = due[topic_partition]
            if self._is_current(followed):
                self._step(followed, partial(self._steps.truncate, followed, answers.get(topic_partition)))
        return True

    def _fetch(self) -> bool:
        asked = self._session.asked
        if not asked:
            return False
        response = self.leader.fetch(self._session.question())
        self.requests += 1
        if not self._session.answered(response):
            log.info("%s: fetch session lost (error %d), asking in full", self._thread.name, response.error_code)
            return True
        raised = False
        for topic in response.topics:
            for answer in topic.partitions:
                topic_partition = TopicPartition(topic.topic, answer.partition)
                followed = asked.get(topic_partition)
                if followed is None or not self._is_current(followed) or self._steps.nothing_new(followed, answer):
                    continue
                start = followed.log_start_offset
                self._step(followed, partial(self._steps.take, followed, answer))
                raised |= followed.log_start_offset > start
                if answer.records and answer.error_code == ErrorCode.NONE:
                    size_bytes = len(answer.records)
                    self.received_bytes += size_bytes
                    self._quota.count(followed.partition, size_bytes)
        if raised:
            self._keep_log_starts()
        return True

    def _step(self, followed: FollowedPartition, step: Callable[[], FollowStep]) -> None:
        """Take a step with one partition; whatever goes wrong with it stays with it (BRK-71, 72)."""
        topic_partition = followed.partition.tp
        try:
            outcome = step()
        except (BrokerUnreachableError, ProtocolError):
            raise  # the connection's trouble, not the partition's
        except OutOfResourcesError as e:
            log.warning("replication of %s waits: %s", topic_partition, e)
            outcome = FollowStep.DELAY
        except StorageError as e:
            log.critical("Disk error while replicating data for %s", topic_partition, exc_info=e)
            log.error("replication of %s stops until the next LeaderAndIsr", topic_partition)
            outcome = FollowStep.FAILED
        except Exception:  # a bad partition must not stop the others (KIP-461)
            log.exception("replication of %s stops until the next LeaderAndIsr", topic_partition)
            outcome = FollowStep.FAILED
        with self._changed:
            if self._followed.get(topic_partition) is not followed:
                return
            if outcome is FollowStep.DONE and self._session.asked.get(topic_partition) is followed:
                self._session.want(followed)  # it goes on, from where it is now, after all others (BRK-69)
                return
            if outcome is FollowStep.DELAY:
                followed.delayed_until_ms = self._clock_ms() + self._config.replica_fetch_backoff_ms
            elif outcome in (FollowStep.FAILED, FollowStep.DROP):
                del self._followed[topic_partition]
            self._to_place[topic_partition] = None
        if outcome is FollowStep.FAILED:
            self._on_failed(topic_partition)

    def _is_current(self, followed: FollowedPartition) -> bool:
        return self._followed.get(followed.partition.tp) is followed

    def _delay_all(self) -> None:
        """Delay all partitions by one backoff; the thread itself does not sleep as well (BRK-71)."""
        until_ms = self._clock_ms() + self._config.replica_fetch_backoff_ms
        with self._changed:
            for followed in self._followed.values():
                followed.delayed_until_ms = until_ms
            self._to_place = dict.fromkeys(self._followed) | self._to_place
