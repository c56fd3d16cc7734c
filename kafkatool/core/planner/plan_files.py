"""JSON files that operators hand to kt: topics to move, reassignment plans, partitions to elect (RSN-2, RSN-5, ELE-2).

Two kinds of fault. What cannot be read or is not JSON is a UsageError with file, line and column (exit 2); JSON whose
content is refused is a RefusedError in the words of Kafka's tools (exit 1). Nothing here touches ZooKeeper, except that
a plan file has the form of the znode it becomes.
"""

import itertools
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar

import orjson

from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.plan_form import encode_partitions, encode_plan
from kafkatool.core.model.values import TopicPartition, join_ids

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
    with suppress(orjson.JSONDecodeError):  # which takes a third of the time, and says less of what is wrong
        return orjson.loads(text)
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


def parse_plan(text: str, name: str, *, name_of: PartitionName = bracketed) -> dict[TopicPartition, tuple[int, ...]]:
    """Parse ``{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]},…]}``, sorted (RSN-5, RSN-7).

    Other keys do not matter, as they do not to Kafka's tools. ``log_dirs`` are left out; others than ``"any"`` are refused.
    Raises UsageError (not JSON), RefusedError (content).
    """
    return _read_plan(_plan_entries(text, name), name, name_of, with_log_dirs=False)


def parse_placed_plan(
    text: str, name: str, *, name_of: PartitionName = bracketed
) -> tuple[dict[TopicPartition, tuple[int, ...]], LogDirs]:
    """Parse the same, and the directories that it names: none where any is right. Raises as ``parse_plan``."""
    entries = _plan_entries(text, name)
    plan = _read_plan(entries, name, name_of, with_log_dirs=True)
    return plan, {
        PlacedReplica(TopicPartition(entry["topic"], entry["partition"]), broker): path
        for entry in entries
        if (log_dirs := entry.get("log_dirs"))
        for broker, path in zip(entry["replicas"], log_dirs, strict=False)
        if path != ANY_LOG_DIR
    }


def _plan_entries(text: str, name: str) -> list[Any]:
    value = parse_json(text, name)
    _check_version(value)
    entries = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not entries:
        raise RefusedError(
            "Partition reassignment data file is empty",
            now=f'{name} has no partitions; the form is {{"version":1,"partitions":[{{"topic":"t","partition":0,'
            '"replicas":[1,2]}]}',
        )
    return entries


def _read_plan(
    entries: Sequence[Any], name: str, name_of: PartitionName, *, with_log_dirs: bool
) -> dict[TopicPartition, tuple[int, ...]]:
    moves = [_move(entry, name, i, name_of, with_log_dirs) for i, entry in enumerate(entries)]
    if not all(replicas for _, replicas in moves):
        raise RefusedError("Partition replica list cannot be empty")
    plan = dict(sorted(moves))
    if len(plan) < len(moves):
        twice = sorted(_duplicates(partition for partition, _ in moves))
        raise RefusedError(
            f"Partition reassignment contains duplicate topic partitions: {','.join(map(name_of, twice))}"
        )
    repeated = [
        f"{name_of(partition)} contains multiple entries for {join_ids(_duplicates(replicas))}"
        for partition, replicas in plan.items()
        if len(set(replicas)) < len(replicas)
    ]
    if repeated:
        raise RefusedError(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")
    return plan


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
    partitions = [_partition(entry, name, i) for i, entry in enumerate(entries)]
    if twice := _duplicates(partitions):
        names = ",".join(map(name_of, sorted(twice)))
        raise RefusedError(f"Preferred replica election data contains duplicate partitions: {names}")
    return tuple(sorted(partitions))


def _check_version(value: Any) -> None:
    version = value.get("version", 1) if isinstance(value, dict) else 1
    if version != 1:
        raise RefusedError(f"Not supported version field value {version}")


def _move(
    entry: Any, name: str, number: int, name_of: PartitionName, with_log_dirs: bool
) -> tuple[TopicPartition, tuple[int, ...]]:
    # Where it is, is written when something is wrong there: texts for 10,000 entries took a tenth of an --execute.
    partition = _partition(entry, name, number)
    replicas = entry.get("replicas")
    if not isinstance(replicas, list):
        raise RefusedError(f"{_entry(name, number)}: 'replicas' is missing or not a list of broker ids")
    for i, replica in enumerate(replicas):
        if type(replica) is not int or replica < 0:
            _natural(replica, f"{_entry(name, number)}.replicas[{i}]", "broker id")
    ids = tuple(replicas)
    log_dirs = entry.get("log_dirs")
    if log_dirs is not None:
        if not isinstance(log_dirs, list) or not all(isinstance(d, str) and d for d in log_dirs):
            raise RefusedError(f'{_entry(name, number)}: log_dirs is not a list of paths or "{ANY_LOG_DIR}"')
        if not with_log_dirs and any(d != ANY_LOG_DIR for d in log_dirs):
            raise RefusedError(
                f'{_entry(name, number)}: log_dirs other than "{ANY_LOG_DIR}" are asked of brokers',
                now="use --bootstrap-server",
            )
        if len(log_dirs) != len(ids):
            raise RefusedError(
                f"Size of replicas list [{', '.join(map(str, ids))}] is different from size of log dirs list "
                f"[{', '.join(log_dirs)}] for partition {name_of(partition)}"
            )
    return partition, ids


def _partition(entry: Any, name: str, number: int) -> TopicPartition:
    if type(entry) is dict:
        topic, partition = entry.get("topic"), entry.get("partition")
        if type(topic) is str and topic and type(partition) is int and partition >= 0:
            return TopicPartition(topic, partition)
    where = _entry(name, number)
    topic = _text(entry, "topic", where)
    return TopicPartition(topic, _natural(entry.get("partition"), f"{where}.partition", "partition number"))


def _entry(name: str, number: int) -> str:
    return f"{name}: partitions[{number}]"


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


def plan_json(moves: Moves, **further: str) -> str:
    """Write the plan compactly, as the znode and the file hold it and ``--generate`` prints it; a file may say more."""
    return encode_plan(moves, **further).decode()


def plan_json_with_log_dirs(moves: Moves) -> str:
    """Write the plan as Kafka's tools of 2.4 and later do, any directory being right."""
    partitions = [
        {"topic": t, "partition": p, "replicas": r, "log_dirs": [ANY_LOG_DIR] * len(r)} for (t, p), r in moves.items()
    ]
    return orjson.dumps({"version": 1, "partitions": partitions}).decode()


def election_json(partitions: Iterable[TopicPartition]) -> str:
    """Write the partitions in the form of ELE-2, compactly."""
    return encode_partitions(partitions).decode()


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
            kept = _copy_beside(path)
    except OSError as e:
        raise _unwritable(path, e) from e
    replace_file(path, content)
    return kept


def replace_file(path: Path, content: bytes) -> None:
    """Replace ``path`` likewise without keeping what was there. Raises RefusedError, also where it is a device or a pipe.

    Several may do so at once, as a run and the --cancel of another kt: one of the contents stays, whole.
    """
    if path.exists() and not path.is_file():  # root would put a file where /dev/null was
        raise RefusedError(f"cannot write {path}: it is no file, and this is to be read again; nothing was changed")
    scratch = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    try:
        scratch.unlink(missing_ok=True)  # of a process of the same numbers that was killed
        with scratch.open("xb") as file:  # no link that somebody else has put there is followed
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


def _copy_beside(path: Path) -> Path:
    """Copy a file to the first number behind its name that is free, also of links."""
    import shutil  # with all the compressions there are: a few commands copy, each reads plans

    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}.{number}")
        with suppress(FileExistsError), kept.open("xb") as copy:
            copy.write(path.read_bytes())
            break
    shutil.copystat(path, kept)
    return kept
