"""JSON files that operators hand to kt: topics to move, reassignment plans, partitions to elect (RSN-2, RSN-5, ELE-2).

Two kinds of fault. What cannot be read or is not JSON is a UsageError with file, line and column (exit 2); JSON whose
content is refused is a RefusedError in the words of Kafka's tools (exit 1). Nothing here touches ZooKeeper, except that
a plan file has the form of the znode it becomes.
"""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.values import TopicPartition, join_ids
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode, ReassignmentZnode

T = TypeVar("T")

Moves = Mapping[TopicPartition, tuple[int, ...]]
"""Partition -> ordered broker ids, sorted by (topic, partition)."""

PartitionName = Callable[[TopicPartition], str]
"""How a text names a partition: ``[t,0]`` or ``t-0`` (COM-9X)."""

STDIN: Final = "-"
_TYPOGRAPHIC_QUOTES: Final = "“”„‟‘’«»″"


def bracketed(partition: TopicPartition) -> str:
    """Name it ``[t,0]``: the form of Kafka <= 0.11."""
    return partition.bracketed


def dashed(partition: TopicPartition) -> str:
    """Name it ``t-0``: the form of Kafka >= 1.0."""
    return str(partition)


# --- reading ---------------------------------------------------------------------------------------------------


def read_text(source: str, stdin: TextIO) -> str:
    """Read the text of a file, or of ``stdin`` when ``source`` is ``-`` (RSN-32X). Raises UsageError."""
    try:
        return stdin.read() if source == STDIN else Path(source).read_text(encoding="utf-8-sig")
    except OSError as e:
        raise UsageError(f"cannot read {source}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"cannot read {source}: byte {e.start} is not UTF-8 text") from e


CURRENT_ASSIGNMENT: Final = "Current partition replica assignment"
"""Kafka's first line before a plan (RSN-4), and before the way back (RSN-8)."""

ANY_LOG_DIR: Final = "any"


class PlacedReplica(NamedTuple):
    """A replica for which a plan names a log directory."""

    partition: TopicPartition
    broker: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


LogDirs = Mapping[PlacedReplica, str]
"""The log directories that a plan names, by their absolute paths."""

PROPOSED_ASSIGNMENT: Final = "Proposed partition reassignment configuration"
"""The one between the two of --generate."""


def parse_json(text: str, name: str) -> Any:
    """Parse the JSON in ``text``; ``name`` is the file for messages. Raises UsageError with line and column (RSN-17X)."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as e:
        at = text[e.pos : e.pos + 1]
        why = e.msg
        if at and at in _TYPOGRAPHIC_QUOTES:
            why = f'typographic quote {at} where JSON wants a plain ": was the text copied from a web page?'
        elif not text.strip():
            why = "the file is empty"
        elif text.startswith(CURRENT_ASSIGNMENT):
            why = (
                "this is all that --generate printed: only its last line is the plan, which --out FILE saves"
                if PROPOSED_ASSIGNMENT in text
                else "this is all that --execute printed: only the JSON below its first line is a plan, the way back"
            )
        raise UsageError(f"{name}:{e.lineno}:{e.colno}: not JSON: {why}") from e
    except RecursionError as e:
        raise UsageError(f"{name}: not a file of kt: nested too deeply") from e


def parse_topics_to_move(text: str, name: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """Parse ``{"topics":[{"topic":"t"}],"version":1}`` to topic names in the file's order (RSN-2).

    ``may_be_empty``: the list may name no topic. Raises UsageError (not JSON), RefusedError (another version, a topic twice,
    no topics).
    """
    value = parse_json(text, name)
    _check_version(value)
    entries = value.get("topics") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not (entries or may_be_empty):
        raise RefusedError(f'{name}: no topics; the form is {{"topics":[{{"topic":"t"}}],"version":1}}')
    topics = tuple(_text(entry, "topic", f"{name}: topics[{i}]") for i, entry in enumerate(entries))
    if twice := _duplicates(topics):
        raise RefusedError(f"List of topics to reassign contains duplicate entries: {','.join(twice)}")
    return topics


def parse_plan(
    text: str, name: str, *, name_of: PartitionName = bracketed, with_log_dirs: bool = False
) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse ``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},…]}``, sorted (RSN-5, RSN-7).

    ``log_dirs`` is left out here; others than ``"any"`` are refused unless ``with_log_dirs``: then ``parse_log_dirs`` reads
    them. Raises UsageError (not JSON), RefusedError (content).
    """
    value = parse_json(text, name)
    _check_version(value)
    entries = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not entries:
        raise RefusedError(
            "Partition reassignment data file is empty",
            now=f'{name} has no partitions; the form is {{"version":1,"partitions":[{{"topic":"t","partition":0,'
            '"replicas":[1,2]}]}',
        )
    moves = [_move(entry, f"{name}: partitions[{i}]", with_log_dirs) for i, entry in enumerate(entries)]
    if not all(replicas for _, replicas in moves):
        raise RefusedError("Partition replica list cannot be empty")
    if twice := _duplicates(partition for partition, _ in moves):
        raise RefusedError(
            f"Partition reassignment contains duplicate topic partitions: {','.join(map(name_of, sorted(twice)))}"
        )
    repeated = [
        f"{name_of(partition)} contains multiple entries for {join_ids(brokers)}"
        for partition, replicas in sorted(moves)
        if (brokers := _duplicates(replicas))
    ]
    if repeated:
        raise RefusedError(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")
    return dict(sorted(moves))


def parse_log_dirs(text: str, name: str) -> LogDirs:
    """Return the directories that a plan, which ``parse_plan`` has taken, names; none where any is right."""
    return {
        PlacedReplica(_partition(entry, name), broker): path
        for entry in parse_json(text, name)["partitions"]
        for broker, path in zip(entry["replicas"], entry.get("log_dirs") or (), strict=False)
        if path != ANY_LOG_DIR
    }


def parse_election(text: str, name: str, *, name_of: PartitionName = dashed) -> tuple[TopicPartition, ...]:
    """Parse ``{"partitions":[{"topic":"t","partition":0},…]}``, sorted; other keys do not matter (ELE-2).

    Raises UsageError (not JSON), RefusedError (no partitions, one twice).
    """
    value = parse_json(text, name)
    entries = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise RefusedError(
            "Preferred replica election data is empty",
            now=f'{name} has no partitions; the form is {{"partitions":[{{"topic":"t","partition":0}}]}}',
        )
    partitions = [_partition(entry, f"{name}: partitions[{i}]") for i, entry in enumerate(entries)]
    if twice := _duplicates(partitions):
        names = ",".join(map(name_of, sorted(twice)))
        raise RefusedError(f"Preferred replica election data contains duplicate partitions: {names}")
    return tuple(sorted(partitions))


def _check_version(value: Any) -> None:
    version = value.get("version", 1) if isinstance(value, dict) else 1
    if version != 1:
        raise RefusedError(f"Not supported version field value {version}")


def _move(entry: Any, where: str, with_log_dirs: bool) -> tuple[TopicPartition, tuple[int, ...]]:
    partition = _partition(entry, where)
    replicas = entry.get("replicas")
    if not isinstance(replicas, list):
        raise RefusedError(f"{where}: 'replicas' is missing or not a list of broker ids")
    ids = tuple(_natural(r, f"{where}.replicas[{i}]", "broker id") for i, r in enumerate(replicas))
    log_dirs = entry.get("log_dirs")
    if log_dirs is not None:
        if not isinstance(log_dirs, list) or not all(isinstance(d, str) and d for d in log_dirs):
            raise RefusedError(f'{where}: log_dirs is not a list of paths or "{ANY_LOG_DIR}"')
        if not with_log_dirs and any(d != ANY_LOG_DIR for d in log_dirs):
            raise RefusedError(
                f'{where}: log_dirs other than "{ANY_LOG_DIR}" are asked of brokers', now="use --bootstrap-server"
            )
        if len(log_dirs) != len(ids):
            raise RefusedError(f"{where}: {len(log_dirs)} log_dirs for {len(ids)} replicas")
    return partition, ids


def _partition(entry: Any, where: str) -> TopicPartition:
    topic = _text(entry, "topic", where)
    return TopicPartition(topic, _natural(entry.get("partition"), f"{where}.partition", "partition number"))


def _text(entry: Any, key: str, where: str) -> str:
    found = entry.get(key) if isinstance(entry, dict) else None
    if not isinstance(found, str) or not found:
        raise RefusedError(f"{where}: {key!r} is missing or not a text")
    return found


def _natural(value: Any, where: str, what: str) -> int:
    if type(value) is not int or value < 0:
        raise RefusedError(f"{where}: {json.dumps(value)} is not a {what} (a whole number, 0 or more)")
    return value


def _duplicates(items: Iterable[T]) -> list[T]:
    return [item for item, times in Counter(items).items() if times > 1]


# --- writing ---------------------------------------------------------------------------------------------------


def plan_json(moves: Moves) -> str:
    """Write the plan compactly, as the znode and the file hold it and ``--generate`` prints it."""
    return ReassignmentZnode.encode(moves).decode()


def plan_json_with_log_dirs(moves: Moves) -> str:
    """Write the plan as Kafka's tools of 2.4 and later do, any directory being right."""
    partitions = [
        {"topic": t, "partition": p, "replicas": list(r), "log_dirs": [ANY_LOG_DIR] * len(r)}
        for (t, p), r in moves.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def election_json(partitions: Iterable[TopicPartition]) -> str:
    """Write the partitions in the form of ELE-2, compactly."""
    return PreferredElectionZnode.encode(tuple(partitions)).decode()


def split_election(
    partitions: Sequence[TopicPartition], *, max_bytes: int, max_count: int = 0
) -> list[list[TopicPartition]]:
    """Cut into batches whose JSON has at most ``max_bytes`` and ``max_count`` entries, 0: any number (ELE-13, 14X).

    Raises UsageError when not even one partition fits.
    """
    return _split(partitions, election_json, str, max_bytes, max_count)


def split_plan(moves: Moves, *, max_bytes: int, max_count: int = 0) -> list[Moves]:
    """Cut into plans whose JSON has at most ``max_bytes`` and ``max_count`` entries, 0: any number (RSN-19X).

    In the order of the plan, so it depends on nothing else (RSN-20X). Raises UsageError when not even one entry fits.
    """
    entries = list(moves.items())
    cut = _split(entries, lambda some: plan_json(dict(some)), lambda entry: str(entry[0]), max_bytes, max_count)
    return [dict(batch) for batch in cut]


def _split(
    entries: Sequence[T],
    encode: Callable[[Iterable[T]], str],
    name_of: Callable[[T], str],
    max_bytes: int,
    max_count: int,
) -> list[list[T]]:
    envelope = len(encode(()))
    batches: list[list[T]] = []
    size = 0
    for entry in entries:
        length = len(encode((entry,)).encode()) - envelope
        if envelope + length > max_bytes:
            raise UsageError(
                f"{name_of(entry)} alone needs {envelope + length} bytes, over --max-json-size {max_bytes}"
            )
        if not batches or size + 1 + length > max_bytes or len(batches[-1]) == max_count:
            batches.append([])
            size = envelope - 1  # the first entry has no comma
        batches[-1].append(entry)
        size += 1 + length
    return batches


def write_file(path: Path, text: str) -> Path | None:
    """Replace ``path`` so that a crash leaves the old content or the new, on disk. Raises RefusedError.

    A file of other content that was there is kept beside it as ``<name>.1``, ``.2``, …: it may be the only way back.
    Return where.
    """
    kept = None
    content = (text + "\n").encode()
    try:
        if path.is_file():
            if path.read_bytes() == content:
                return None
            kept = Path(shutil.copy2(path, _free_name(path)))
    except OSError as e:
        raise _unwritable(path, e) from e
    replace_file(path, content)
    return kept


def replace_file(path: Path, content: bytes) -> None:
    """Replace ``path`` likewise without keeping what was there. Raises RefusedError.

    Several may do so at once, as a run and the --cancel of another kt: one of the contents stays, whole.
    """
    scratch = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        with scratch.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as e:
        with suppress(OSError):
            scratch.unlink()
        raise _unwritable(path, e) from e


def _unwritable(path: Path, error: OSError) -> RefusedError:
    return RefusedError(f"cannot write {path}: {error.strerror}; nothing was changed")


def _free_name(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return kept
