"""Makes and ends the fetchers, and deals the partitions out to them (BRK-64, 65).

Source: Kafka 1.1.1 server/AbstractFetcherManager.scala.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.following.fetcher import ReplicaFetcher
from kafkatool.broker.replication.following.leader_endpoint import LeaderEndpoint
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.replication.partition.replication_quota import ReplicationQuota
from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.model.java_hash import java_bucket, java_int, java_string_hash
from kafkatool.core.model.values import TopicPartition

log = logging.getLogger(__name__)

_END_TIMEOUT_MS = 5000  # a thread may be connecting to a host that does not answer; it is a daemon


class LeaderAddress(NamedTuple):
    """A leader and its address for other brokers."""

    broker_id: int
    host: str
    port: int


def fetcher_number(partition: TopicPartition, fetchers: int) -> int:
    """Return which of the ``fetchers`` of a leader a partition belongs to (BRK-64)."""
    return java_bucket(java_int(31 * java_string_hash(partition.topic) + partition.partition), fetchers)


@dataclass(eq=False)
class FetcherManager:
    """All fetchers of this broker. Thread-safe; used by control requests, one at a time."""

    _config: BrokerConfig
    _broker_id: int
    _quota: ReplicationQuota
    _check_delayed: Callable[[TopicPartition], None]
    _keep_log_starts: Callable[[], None]
    _thread_prefix: str
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _fetchers: dict[tuple[int, int], ReplicaFetcher] = field(default_factory=dict, init=False)  # by (leader, number)
    _ending: list[ReplicaFetcher] = field(default_factory=list, init=False)
    _failed: set[TopicPartition] = field(default_factory=set, init=False)
    _number: int = field(init=False)
    """Of fetchers for each leader."""
    _leaves: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._number = self._config.num_replica_fetchers

    @property
    def failed(self) -> frozenset[TopicPartition]:
        """Return the partitions whose replication stopped on a local failure (BRK-72)."""
        return frozenset(self._failed)

    def add(self, partitions: Iterable[tuple[Partition, LeaderAddress]]) -> None:
        """Follow each in its current leader epoch, beginning in state truncating; none once this broker leaves."""
        with self._lock:
            if not self._leaves:
                self._add(partitions)

    def leave(self) -> None:
        """Follow nothing more than is followed already: this broker asks to have its leaders moved, and goes down.

        Kafka's controller makes it a follower of who leads after it. Its first fetch would have that leader take it back
        into the in-sync set, out of which the controller has just taken it, and so it would stay there, being gone, for as
        long as nothing is written (Kafka: KIP-841).
        """
        with self._lock:
            self._leaves = True

    def _add(self, partitions: Iterable[tuple[Partition, LeaderAddress]]) -> None:
        groups: dict[tuple[LeaderAddress, int], list[FollowedPartition]] = {}
        for partition, leader in partitions:
            self._failed.discard(partition.tp)
            number = fetcher_number(partition.tp, self._number)
            followed = FollowedPartition(partition, partition.leader_epoch)
            groups.setdefault((leader, number), []).append(followed)
        for (leader, number), followed_partitions in groups.items():
            self._fetcher(leader, number).add(followed_partitions)

    def set_number(self, number: int) -> None:
        """Have so many fetchers for each leader, and deal out anew what is followed (KIP-226)."""
        with self._lock:
            if number == self._number:
                return
            self._number = number
            before, self._fetchers = self._fetchers, {}
            followed = []
            for (leader_id, _), fetcher in before.items():
                leader = LeaderAddress(leader_id, fetcher.leader.host, fetcher.leader.port)
                followed += [(one.partition, leader) for one in fetcher.take_all()]
                fetcher.stop()
            for fetcher in before.values():
                fetcher.join(_END_TIMEOUT_MS)  # what it was writing is written before another asks where the log ends
            self._add(followed)

    def _fetcher(self, leader: LeaderAddress, number: int) -> ReplicaFetcher:
        key = (leader.broker_id, number)
        fetcher = self._fetchers.get(key)
        if fetcher is not None:
            if (fetcher.leader.host, fetcher.leader.port) == (leader.host, leader.port):
                return fetcher
            self._end(self._fetchers.pop(key))
        client_id = f"broker-{self._broker_id}-fetcher-{number}"
        endpoint = LeaderEndpoint(self._config, self._broker_id, client_id, leader.host, leader.port)
        name = f"{self._thread_prefix}ReplicaFetcherThread-{number}-{leader.broker_id}"
        fetcher = self._fetchers[key] = ReplicaFetcher(
            name,
            self._config,
            endpoint,
            self._quota,
            check_delayed=self._check_delayed,
            on_failed=self._failed.add,
            keep_log_starts=self._keep_log_starts,
        )
        fetcher.start()
        return fetcher

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Follow them no longer."""
        gone = list(partitions)
        self._failed.difference_update(gone)
        with self._lock:
            for fetcher in self._fetchers.values():
                fetcher.remove(gone)

    def close_idle(self) -> None:
        """End the fetchers that follow nothing (BRK-31)."""
        with self._lock:
            for key in [key for key, fetcher in self._fetchers.items() if fetcher.idle]:
                self._end(self._fetchers.pop(key))

    def _end(self, fetcher: ReplicaFetcher) -> None:
        fetcher.stop()
        self._ending = [f for f in self._ending if f.alive]
        self._ending.append(fetcher)

    def lags(self) -> dict[TopicPartition, int | None]:
        """Return the lag of every followed partition (BRK-157)."""
        with self._lock:
            return {tp: lag for fetcher in self._fetchers.values() for tp, lag in fetcher.lags().items()}

    def traffic(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return (leader, fetcher number) -> (requests, bytes) (BRK-157)."""
        with self._lock:
            return {key: (f.requests, f.received_bytes) for key, f in self._fetchers.items()}

    def shutdown(self) -> None:
        """End all fetchers and wait for their threads."""
        with self._lock:
            for key in list(self._fetchers):
                self._end(self._fetchers.pop(key))
            ending, self._ending = self._ending, []
        for fetcher in ending:
            fetcher.join(_END_TIMEOUT_MS)
