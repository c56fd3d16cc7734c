"""Observations: what one line says of one partition, the raw material of facts (SCL-17X). Pure functions."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafkatool.core.statelog.lines.details import Details, read_numbers, read_recovery_state
from kafkatool.core.statelog.sources.chunks import Record

LEADERSHIP_EVENTS: Final = frozenset(
    {
        *("partition_online", "isr_shrunk", "reassignment_sent", "leader_and_isr_sent", "update_metadata_sent"),
        *("leader_and_isr_received", "metadata_cached", "leader_started", "follower_started", "partition_changed"),
    }
)
"""Lines that tell leader, ISR or leader epoch of a partition."""

FAILURES: Final = frozenset(
    {
        *("partition_change_failed", "replica_change_failed", "election_failed", "election_aborted"),
        *("reassignment_send_failed", "leader_and_isr_failed", "transition_failed", "leader_unavailable"),
        *("zookeeper_failed", "topic_id_mismatch", "response_error", "fetcher_failed", "replica_removal_failed"),
    }
)
"""Lines that tell that something did not work."""

LIFE_EVENTS: Final = frozenset(
    {
        *("partition_created", "partition_offline", "partition_removed", "metadata_deleted", "leader_elected"),
        *("replica_created", "leader_recovering"),
    }
)
IGNORED: Final = frozenset({"leader_and_isr_ignored", "partition_change_ignored"})
"""Lines that tell of what was out of date: the state in them is not the partition's."""

DISK_FAILED: Final = "replicas_marked_offline"
OBSERVED: Final = LEADERSHIP_EVENTS | FAILURES | LIFE_EVENTS | IGNORED | {DISK_FAILED}

RECOVERED: Final = "RECOVERED"
RECOVERING: Final = "RECOVERING"

NO_CONTROLLER: Final = -1
"""The controller epoch in what brokers log without ZooKeeper."""

REASON_BYTES: Final = 300
"""As much of an error's text as is kept."""


class Observation(NamedTuple):
    """One line's statement about one partition. ``time`` compares as text; ``line`` is its number in log ``source``.

    ``controller`` and ``epoch``: whose decision or request it is. ``leader`` -1: none, -2: topic being deleted.
    ``targets`` are the brokers a controller sends to. ``text`` is an error's words, or a state left. ``recovery`` is
    RECOVERED or RECOVERING; ``mode`` "zookeeper" or "kraft", where the form tells it.
    """

    time: str
    source: int
    offset: int
    line: int
    event: str
    actor: str
    actor_id: int
    targets: tuple[int, ...] = ()
    controller: int | None = None
    epoch: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    isr: tuple[int, ...] | None = None
    partition_epoch: int | None = None
    state_epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    topic_id: str | None = None
    text: str | None = None
    recovery: str | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    mode: str | None = None

    def __reduce__(self) -> tuple[Callable[[tuple[Any, ...]], "Observation"], tuple[tuple[Any, ...]]]:
        """Be pickled as one tuple: half the work of a class with fields, and of these there are millions."""
        return _restored, (tuple(self),)


def _restored(values: tuple[Any, ...]) -> Observation:
    return tuple.__new__(Observation, values)


Said = tuple[str, tuple[Any, ...], tuple[Any, ...]]
"""What a line says. Many lines say the same, and share it.

Who says what kind of thing to whom (a text, whose hash is reckoned once); what, from ``controller`` to ``topic_id``; and
all values of an Observation from ``event`` on.
"""

Heard = tuple[str, int, str, int, int, int, int, Said]
"""Topic, partition, time, log, offset, chunk, and line in it: an Observation on its way between the rounds."""

_AT: Final = {name: at for at, name in enumerate(Observation._fields[4:])}
_WHAT, _REST = _AT["controller"], _AT["text"]
_LEADER_EPOCH: Final = _AT["leader_epoch"] - _WHAT
_CREATED, _FOLLOWS = "replica_created ", "follower_started "
_NOT_OF_IGNORED: Final = ("leader", "leader_epoch", "isr", "partition_epoch")


def said_in(values: Sequence[Any]) -> Said:
    """Return those values of an Observation, from ``event`` on, as what a line says."""
    return " ".join(map(str, values[:_WHAT])), tuple(values[_WHAT:_REST]), tuple(values)


class Statement:
    """What lines of one shape say of partitions: which values of an Observation stand where, and those that are given."""

    __slots__ = ("_given", "_readers", "_spans", "explains", "places")

    def __init__(self, details: Details, event: str, actor_id: slice) -> None:
        """Take the details of the shape, and the event and the writer's place among them, which are there."""
        is_controller = details.actor == "controller"
        places: dict[str, tuple[slice | None, Callable[[bytes], Any]]] = {
            "actor_id": (actor_id, int),
            "controller": (actor_id if is_controller else details.sender, int),
            "epoch": (details.epoch, int),
            "leader": (actor_id if event == "leader_started" else details.leader, int),
            "leader_epoch": (details.leader_epoch, int),
            "isr": (details.isr, read_numbers),
            "partition_epoch": (details.partition_epoch, int),
            "state_epoch": (details.state_epoch, _state_epoch),
            "replicas": (details.replicas, read_numbers),
            "topic_id": (details.topic_id, _text),
            "targets": (details.target if event in LEADERSHIP_EVENTS else None, read_numbers),
            "recovery": (details.recovery, read_recovery_state),
            "adding": (details.adding, read_numbers),
            "removing": (details.removing, read_numbers),
        }
        if event in IGNORED:
            places |= dict.fromkeys(_NOT_OF_IGNORED, (None, int))
        told = [(_AT[name], at, read) for name, (at, read) in places.items() if at is not None]
        self._readers = told
        self.places = [place for _, place, _ in told]
        """Where in a line the words are that all it says is in, but for what went wrong (``explains``)."""
        self.explains = event in FAILURES or event in IGNORED or event == DISK_FAILED
        given: dict[str, Any] = {"event": event, "actor": details.actor, "targets": (), "mode": details.shape.mode}
        given["text"] = None if self.explains else details.from_state
        self._given = [given.get(name) for name in _AT]
        self._spans = details.shape.spans

    @property
    def tells_isr(self) -> bool:
        """Tell if the lines have a partition's ISR and are of those that tell also of the leader's own changes."""
        isr_told = any(at == _AT["isr"] for at, _, _ in self._readers)
        return isr_told and self._given[_AT["event"]] in ("metadata_cached", "update_metadata_sent")

    def read(self, line: bytes) -> Said:
        """Return what a line says, but for what went wrong."""
        said = self._given.copy()
        for at, place, read in self._readers:
            said[at] = read(line[place])
        return said_in(said)

    def explained(self, said: Said, record: Record[Any]) -> Said:
        """Return it with what went wrong, in the words of the record."""
        who, what, values = said
        return who, what, (*values[:_REST], _words(record), *values[_REST + 1 :])

    def partitions(self, line: bytes) -> Iterator[tuple[str, int]]:
        """Yield topic and number of the partitions that a line names."""
        for topic_start, topic_end, start, end in self._spans:
            yield _name(line[topic_start:topic_end]), int(line[start:end])


def statement_of(details: Details) -> Statement | None:
    """Return what lines with these details say of partitions; None: nothing."""
    event = details.shape.event
    if event is None or event not in OBSERVED or details.actor_id is None or details.actor is None:
        return None
    return Statement(details, event, details.actor_id) if details.shape.spans else None


def observe(record: Record[Details], source: int, line: int) -> Iterator[tuple[str, int, Observation]]:
    """Yield topic, partition and observation for each partition that a record says something of."""
    statement = statement_of(record.details)
    if statement is not None:
        said = statement.read(record.line)
        if statement.explains:
            said = statement.explained(said, record)
        observation = Observation(record.time.decode("latin-1"), source, record.offset, line, *said[2])
        for topic, partition in statement.partitions(record.line):
            yield topic, partition, observation


def drop_repeats(observed: Iterable[Heard]) -> Iterator[Heard]:
    """Yield what is heard, but for what a broker repeats word by word.

    What it says after it created the partition anew is no repeat, though it may be the same: the topic may be another.
    """
    latest: dict[tuple[object, ...], tuple[object, ...]] = {}
    for heard in observed:
        topic, partition, _, source, _, _, _, (who, what, _) = heard
        key = topic, partition, source, who
        if who.startswith(_CREATED):
            latest.pop((topic, partition, source, who.replace(_CREATED, _FOLLOWS, 1)), None)
        if what[_LEADER_EPOCH] is None or latest.get(key) != what:
            latest[key] = what
            yield heard


def tell_unclean_starts(observed: Iterable[Observation]) -> Iterator[Observation]:
    """Yield observations of one partition, in order of log and offset, each once; a leader that starts after an unclean
    election recovers, which only the line before says.
    """
    recovering: set[tuple[int, int]] = set()
    before: Observation | None = None
    for o in observed:
        if o == before:
            continue  # a line that names the partition twice
        before = o
        if o.event == "leader_recovering":
            recovering.add((o.source, o.actor_id))
        elif recovering and o.event == "leader_started" and (o.source, o.actor_id) in recovering:
            recovering.remove((o.source, o.actor_id))
            yield o._replace(recovery=RECOVERING)
            continue
        yield o


def _state_epoch(text: bytes) -> int | None:
    epoch = int(text)
    return None if epoch == NO_CONTROLLER else epoch


def _text(text: bytes) -> str:
    return text.decode("latin-1")


def join_into(mine: dict[Any, Any], others: Mapping[Any, Any]) -> None:
    """Add values that can be joined to those of the same keys."""
    for key, value in others.items():
        mine[key] = mine[key].joined(value) if key in mine else value


@lru_cache(maxsize=10_000)
def _name(topic: bytes) -> str:
    return os.fsdecode(topic)


@lru_cache(maxsize=100_000)
def _minute_ms(minute: str) -> int:
    try:
        return int((datetime.strptime(minute, "%Y-%m-%d %H:%M") - datetime(1970, 1, 1)).total_seconds()) * 1000
    except ValueError:
        return 0


def milliseconds(time: str) -> int:
    """Return milliseconds from 1970 to a time ``yyyy-MM-dd HH:mm:ss,SSS``, without zones; what is no time counts as 0."""
    return _minute_ms(time[:16]) + int(time[17:19]) * 1000 + int(time[20:23])


def _words(record: Record[Any]) -> str:
    """Return what went wrong: the exception that follows the line, else the line's own words; short."""
    text = record.line.decode("utf-8", "replace")
    if record.tail:
        return record.tail[0].decode("utf-8", "replace").strip()[:REASON_BYTES]
    for mark in (" due to: ", " due to ", " since ", " because ", " as ", ". "):
        _, found, words = text.partition(mark)
        if found:
            return words.removesuffix(" (state.change.logger)").strip()[:REASON_BYTES]
    return ""
