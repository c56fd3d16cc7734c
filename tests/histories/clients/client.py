"""What a process of the workload has, whoever's library it goes by, and the cell of the matrix that all of a run share."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from tests.histories.clients.values import TEXT, encode, record_key
from tests.histories.writer import DELETE_RETENTION_MS, Options

LIBRDKAFKA: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"

DELIVERY_S: Final = 10.0
"""After that, what became of a send is unknown."""
PATIENT_S: Final = 120.0
"""The same, for a test that demands that all arrives: a busy machine may stand still meanwhile."""
SESSION_MS: Final = 6000
_PATIENT_SESSION_MS: Final = 60_000
START: Final = 0
"""Where a key begins. By its name librdkafka may ask for it once more, and go back to it (docs/known-faults.md)."""

_OTHER: Final = -196  # librdkafka's number for any other failure

Runs = dict[int, list[tuple[int, int | None]]]


class Cell(NamedTuple):
    """One cell of the matrix: what all processes of a run have in common."""

    via: str  # assign or subscribe
    guarantee: str  # plain, idempotent or transactional
    isolation: str = "read_committed"
    client: str = LIBRDKAFKA
    acks: str = "all"
    cleanup: str = "delete"  # or compact
    min_isr: int = 2
    unclean: bool = False

    @property
    def compacted(self) -> bool:
        return self.cleanup == "compact"

    @property
    def transactional(self) -> bool:
        return self.guarantee == "transactional"

    @property
    def transforms(self) -> bool:
        """Tell if some consume, transform and produce: not by aiokafka, which does not say whose a group's offsets are."""
        return self.transactional and self.client == LIBRDKAFKA

    @property
    def options(self) -> Options:
        """Return what a history's header says of the clients and their topics; no faults unless the run adds them."""
        return {
            "acks": self.acks,
            "idempotent": self.guarantee != "plain",
            "transactional": self.transactional,
            "in_flight": 5,
            "isolation": self.isolation,
            "via": self.via,
            "reset": "earliest",
            "min_isr": self.min_isr,
            "unclean": self.unclean,
            "cleanup": self.cleanup,
            "delete_retention_ms": DELETE_RETENTION_MS,
            "client": self.client,
            "faults": False,
        }


class Ended(NamedTuple):
    """How a transaction ended: the operation's type, whether the process goes on, when its commit was asked for."""

    type: str
    goes_on: bool
    asked_at: int | None


class Client:
    """One producer and one consumer, used by one thread: what of it all libraries have in common.

    What fails raises KafkaException. Not every library's recorder has groups and transactions.
    """

    def __init__(self, process: int, cell: Cell, group: str | None = None, *, patient: bool = False) -> None:
        """Who is ``patient`` gives up no send and no session while machines stand still."""
        self._compacted = cell.compacted
        self._delivery_s = PATIENT_S if patient else DELIVERY_S
        self._session_ms = _PATIENT_SESSION_MS if patient else SESSION_MS
        self.process = process
        self.group = group
        self.line = 0  # in which what it does was asked for: all that it sends says so
        self.events: list[dict[str, Any]] = []  # what its group told it, until somebody takes them
        self.broken = False  # whether its producer has given up for good
        self.positions: dict[int, int] = {}  # of polled keys: next to read
        self.began: dict[int, int] = {}  # of keys that its group gave it: where it began, if that is known

    def send(self, sends: Sequence[tuple[int, int]]) -> list[tuple[int | None, str]]:
        """Send key and value pairs side by side; return offset and outcome of each, INFO for what is not known in time."""
        raise NotImplementedError

    def _record(self, key: int, value: int) -> dict[str, Any]:
        """Return what is sent for a value: its text, and of compacted topics a record key; a tombstone has a header."""
        text = encode(value, key, self.process, self.line)
        if not self._compacted:
            return {"value": text}
        return {"key": record_key(value)} | ({"value": text} if value > 0 else {"headers": [(TEXT, text)]})

    def poll(self) -> Runs:
        """Return what one call delivers."""
        raise NotImplementedError

    def assign(self, keys: Sequence[int], *, from_start: bool = False) -> None:
        """Read these keys from where this process is in each; a key it does not have begins at its start."""
        raise NotImplementedError

    def _starts_of(self, keys: Sequence[int], *, from_start: bool) -> dict[int, int]:
        """Forget all other keys; return where to read each of these."""
        self.positions = {} if from_start else {key: at for key, at in self.positions.items() if key in keys}
        return {key: self.positions.get(key, START) for key in keys}

    def close(self) -> None:
        """Leave; what is still waiting to be sent is dropped."""
        raise NotImplementedError

    # --- groups

    @property
    def member(self) -> str | None:
        return None

    @property
    def generation(self) -> int | None:
        return None

    def subscribe(self, keys: Sequence[int]) -> None:
        raise NotImplementedError

    def commit(self, offsets: Mapping[int, int]) -> str:
        """Commit these positions of its group; return how that ended."""
        raise NotImplementedError

    # --- transactions

    def begin(self) -> None:
        raise NotImplementedError

    def send_offsets(self, offsets: Mapping[int, int]) -> None:
        raise NotImplementedError

    def commit_transaction(self) -> Ended:
        """End the transaction; one that may have been committed is never aborted."""
        raise NotImplementedError

    def abort_transaction(self) -> Ended:
        """Take the transaction back, whose commit was never asked for: whatever comes of that, it fails."""
        raise NotImplementedError

    def seek_back(self, positions: Mapping[int, int]) -> None:
        """Go on where the process was before a transaction that failed."""
        raise NotImplementedError


@contextlib.contextmanager
def told_by_librdkafka(*errors: type[BaseException]) -> Iterator[None]:
    """Raise KafkaException, which is all that a worker knows, for these errors of another library."""
    try:
        yield
    except errors as e:
        raise KafkaException(KafkaError(_OTHER, repr(e))) from e
