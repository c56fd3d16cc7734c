"""The state of one incremental fetch session: partitions wanted, what was told, what has changed (KIP-227).

Most partitions of a follower do not change between two fetches, and thousands of them must cost nothing. So a fetch
looks only at the partitions that were marked as changed: by an append, a raised high watermark, a change of role, or by
the client itself. Whatever could change the answer calls :meth:`FetchSession.mark_changed`. Retention, which moves a
log's start, does not; a round through all partitions, a slice a second, finds that.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from kafkatool.broker.replication.partition.partition_reads import PartitionRead, Reader
from kafkatool.broker.replication.partition.replica import LastSessionFetch
from kafkatool.broker.replication.partition.session_epochs import INITIAL_EPOCH, epoch_after
from kafkatool.broker.security.principal import ANONYMOUS, Principal
from kafkatool.broker.storage.log.log_offset import LogOffset
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition

_SLICE_MS = 1000
_SLICES = 30  # so often a slice, and all partitions have been looked at

FetchEntries = list[tuple[TopicPartition, FetchRequestPartition]]
FetchResults = list[tuple[TopicPartition, PartitionRead]]


@dataclass(slots=True, eq=False)
class SessionPartition:
    """One partition of a session: its part of the request, where that lies, and what was told last."""

    wanted: FetchRequestPartition
    start: LogOffset | None = None
    high_watermark: int = -1
    log_start_offset: int = -1

    def is_news(self, read: PartitionRead) -> bool:
        """Tell whether the client must hear of it, and note it as told."""
        news = bool(
            read.size_bytes
            or read.error
            or read.preferred_replica >= 0
            or read.high_watermark != self.high_watermark
            or read.log_start_offset != self.log_start_offset
        )
        # After an error -1 is noted: once it is over the partition is news again.
        self.high_watermark, self.log_start_offset = read.high_watermark, read.log_start_offset
        return news


class FetchSession:
    """A session, used by one request at a time: its client waits for each answer. A lock guards against others.

    ``privileged``: a follower's, not taken for a consumer's. ``owner``: nobody else may go on with it (SEC-87).
    """

    def __init__(self, session_id: int, now_ms: float, *, privileged: bool, owner: Principal = ANONYMOUS) -> None:
        self.id = session_id
        self.owner = owner
        self.privileged = privileged
        self.epoch = epoch_after(INITIAL_EPOCH)  # of the next request
        self.last_fetch = LastSessionFetch(now_ms)
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, SessionPartition] = {}
        # A mark is taken before its partition is looked at and made after a change is done, each in one step: so none
        # is lost, whoever comes first.
        self._changed: dict[TopicPartition, None] = {}
        self._untold: dict[TopicPartition, PartitionRead] = {}  # what the waiting request found when it came
        self._not_looked_at: list[TopicPartition] = []
        self._slice_due_ms = now_ms + _SLICE_MS

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return all the client wants."""
        return list(self._partitions)

    # --- what changes -----------------------------------------------------------------------------------------------

    def mark_changed(self, partition: TopicPartition) -> None:
        """Have the next fetch look at it. From any thread."""
        self._changed[partition] = None

    def update(self, request: FetchRequest) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Take over what the client lists and forgets; return those that are new here and those that are gone."""
        added, gone = [], []
        with self._lock:
            for topic in request.topics:
                for wanted in topic.partitions:
                    topic_partition = TopicPartition(topic.topic, wanted.partition)
                    told = self._partitions.get(topic_partition)
                    if told is None:
                        self._partitions[topic_partition] = SessionPartition(wanted)
                        added.append(topic_partition)
                    else:
                        told.wanted = wanted
                    self._changed[topic_partition] = None
            for forgotten in request.forgotten_topics:
                for partition in forgotten.partitions:
                    topic_partition = TopicPartition(forgotten.topic, partition)
                    if self._partitions.pop(topic_partition, None) is not None:
                        gone.append(topic_partition)
        return added, gone

    def next_request(self, now_ms: float) -> None:
        """Note that one has come, with the right epoch."""
        self.last_fetch.time_ms = now_ms
        self.epoch = epoch_after(self.epoch)
        if now_ms >= self._slice_due_ms:
            self._slice_due_ms = now_ms + _SLICE_MS
            self._mark_a_slice()

    def _mark_a_slice(self) -> None:
        if not self._not_looked_at:
            self._not_looked_at = list(self._partitions)
        size = len(self._partitions) // _SLICES + 1
        self._changed.update(dict.fromkeys(self._not_looked_at[-size:]))
        del self._not_looked_at[-size:]

    # --- what is looked at ------------------------------------------------------------------------------------------

    def take(self) -> FetchEntries:
        """Return what a new request has to look at, and take off the marks; longest unserved first."""
        entries: FetchEntries = []
        for topic_partition in list(self._changed):
            self._changed.pop(topic_partition, None)
            if (told := self._partitions.get(topic_partition)) is not None:
                entries.append((topic_partition, told.wanted))
        return entries

    def wait(self, results: FetchResults) -> None:
        """Note that they were looked at but not told: the request waits."""
        for topic_partition, read in results:
            if (told := self._partitions.get(topic_partition)) is not None:
                told.start = read.start
            if read.size_bytes:  # too little of it: read again when the wait is over
                self._changed[topic_partition] = None
        self._untold = dict(results)

    def take_again(self) -> FetchEntries:
        """Return what to look at when the wait is over.

        Marks stay: with the next request the client's position is noted there, and that may be what the mark is about.
        """
        return [(tp, told.wanted) for tp, told in self.items()]

    def with_untold(self, results: FetchResults) -> FetchResults:
        """Return the results of the last look, after what was found before and has not changed since."""
        untold, self._untold = self._untold, {}
        for topic_partition, _ in results:
            untold.pop(topic_partition, None)
        return [*untold.items(), *results]

    def get(self, partition: TopicPartition) -> SessionPartition | None:
        """Return what a waiting fetch wants of that partition; None: nothing, it was forgotten."""
        return self._partitions.get(partition)

    def knows_high_watermark(self, partition: TopicPartition, read: PartitionRead) -> bool:
        """Tell whether the client has been told that high watermark."""
        told = self._partitions.get(partition)
        return told is None or told.high_watermark == read.high_watermark

    def items(self) -> Iterable[tuple[TopicPartition, SessionPartition]]:
        """Return the partitions of which a waiting fetch may find something."""
        return [(tp, told) for tp in list(self._changed) if (told := self._partitions.get(tp)) is not None]

    def tell(self, results: FetchResults, reader: Reader, *, everything: bool) -> FetchResults:
        """Return the part of the results that the client does not know yet, or all; note them as told.

        Those of which more can be read come next time too, after all others if they had data this time (BRK-106).
        """
        news: FetchResults = []
        served: list[TopicPartition] = []
        with self._lock:
            for topic_partition, read in results:
                told = self._partitions.get(topic_partition)
                if told is None:
                    continue  # forgotten by a later request; not this one's to tell
                told.start = read.start
                if told.is_news(read) or everything:
                    news.append((topic_partition, read))
                if read.size_bytes:
                    served.append(topic_partition)
                elif read.leaves_some(reader):
                    self._changed[topic_partition] = None
            for topic_partition in served:
                self._changed.pop(topic_partition, None)
                self._changed[topic_partition] = None
        return news
