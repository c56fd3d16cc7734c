"""The follower's side of a fetch session: only what changed is asked, what is no longer wanted is named once (KIP-227).

Without sessions (Fetch below 7, or a leader that has no slot) every request is the full list, in round-robin order.
Source: Kafka 2.3.1 clients FetchSessionHandler.java.
"""

from typing import NamedTuple

from kafkatool.broker.replication.following.fetch_state import FollowedPartition
from kafkatool.broker.replication.partition.session_epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, epoch_after
from kafkatool.core.errors import ProtocolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.fetch import FetchRequestPartition, FetchResponse

_SESSION_ERRORS = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class FetchQuestion(NamedTuple):
    """The session and the partitions of one fetch request, by topic."""

    session_id: int
    session_epoch: int
    wanted: dict[str, list[FetchRequestPartition]]
    forgotten: dict[str, list[int]]


class FollowerSession:
    """The session with one leader. Used by a fetcher's thread alone."""

    def __init__(self, *, sessions: bool) -> None:
        """Begin without a session. ``sessions``: whether the leader's version of Fetch knows them."""
        self.asked: dict[TopicPartition, FollowedPartition] = {}
        """The partitions the next answer may be about; in round-robin order (BRK-69)."""
        self._sessions = sessions
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH  # of the next request
        self._changed: dict[TopicPartition, None] = {}
        self._forgotten: dict[TopicPartition, None] = {}

    def want(self, followed: FollowedPartition) -> None:
        """Put it into the next request, if there is anything new to say of it; then it goes to the end of the order."""
        topic_partition = followed.partition.tp
        position = (followed.fetch_offset, followed.log_start_offset)
        if self.asked.get(topic_partition) is followed and followed.asked_at == position:
            return
        self.asked.pop(topic_partition, None)
        self.asked[topic_partition] = followed
        followed.asked_at = position
        self._forgotten.pop(topic_partition, None)
        self._changed[topic_partition] = None

    def drop(self, partition: TopicPartition) -> None:
        """Ask for it no longer."""
        if self.asked.pop(partition, None) is not None:
            self._changed.pop(partition, None)
            self._forgotten[partition] = None

    def question(self) -> FetchQuestion:
        """Return the next request; it counts as sent: unless it is answered, call ``start_over``."""
        full = self._epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        wanted: dict[str, list[FetchRequestPartition]] = {}
        for topic_partition in self.asked if full else self._changed:
            wanted.setdefault(topic_partition.topic, []).append(self.asked[topic_partition].wanted())
        forgotten: dict[str, list[int]] = {}
        if not full:
            for topic, partition in self._forgotten:
                forgotten.setdefault(topic, []).append(partition)
        self._changed, self._forgotten = {}, {}
        return FetchQuestion(self._id, self._epoch if self._sessions else FINAL_EPOCH, wanted, forgotten)

    def answered(self, response: FetchResponse) -> bool:
        """Note what the leader says of the session; False if it refused the request for that. Raises ProtocolError."""
        if response.error_code in _SESSION_ERRORS:
            self.start_over()
            return False
        if response.error_code != ErrorCode.NONE:
            raise ProtocolError(f"a fetch was answered with error {response.error_code}")
        if response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self._id = response.session_id
            self._epoch = epoch_after(self._epoch)
        return True

    def start_over(self) -> None:
        """Make the next request a full one; it closes the session it names, should the leader still have it."""
        self._epoch = INITIAL_EPOCH
