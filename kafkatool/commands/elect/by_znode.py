"""``kt elect`` through ZooKeeper: the request is a znode, and what came of it is seen in the partitions' states (ELE)."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kafkatool.commands.elect.columns import CAUTION, COLUMNS
from kafkatool.commands.elect.rendering import batch_text, counted, outcome_item, outcome_lines, report_answer
from kafkatool.commands.shared.options import connect, no_topic_text, show_planned, to_type
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.shared.termination import interruptions_kept
from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model import topic_names
from kafkatool.core.model.values import TopicPartition, in_number, join_ids
from kafkatool.core.operations.election import election
from kafkatool.core.operations.election.election import ElectionResult, Outcome, Selection
from kafkatool.core.planner.plan_files import (
    STDIN,
    PartitionName,
    election_json,
    parse_election,
    read_text,
    split_election,
    write_file,
)
from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.session import Create, ZooKeeper
from kafkatool.core.zookeeper.znodes import PreferredElectionZnode

FAILED_TO_START: Final = "Failed to start preferred replica election"


@dataclass(frozen=True, slots=True)
class Options:
    """The flags as click has parsed them."""

    zookeeper: str
    out: Output
    name_of: PartitionName
    cluster_id: str | None
    zk_max_bytes: int
    dry_run: bool
    path_to_json_file: str | None
    election_type: str
    topic: str | None
    partition: int | None
    all_topic_partitions: bool
    broker: int | None
    only_imbalanced: bool
    max_json_size: int
    batch_partitions: int
    interval: float
    timeout: float
    no_wait: bool
    force: bool
    write_json: Path | None
    report: bool
    threshold: float


def elect(o: Options) -> int:
    """Elect, or save the selection, or report. Return the exit code. Raises UsageError for flags that do not go together."""
    if o.election_type.lower() != "preferred" or o.partition is not None:
        raise UsageError("with --zookeeper there are elections of preferred replicas alone, and --topic is a regex")
    selects = o.topic is not None or o.broker is not None
    if o.all_topic_partitions and (o.path_to_json_file is not None or selects):
        raise UsageError("--all-topic-partitions can't be used with a selection")
    if o.path_to_json_file is not None and selects:
        raise UsageError("--topic and --broker select without a file: they can't be used with --path-to-json-file")
    if o.report:
        others = {
            "--write-json": o.write_json,
            "--broker": o.broker,
            "--only-imbalanced": o.only_imbalanced or None,
        }
        if given := [flag for flag, value in others.items() if value is not None]:
            raise UsageError(f"--report can't be used with {given[0]}: it tells of all brokers")
    try:
        return _run(o)
    except UsageError:
        raise
    except KafkatoolError as e:
        return _failed(o, e)


def _run(o: Options) -> int:
    wanted = None
    if o.path_to_json_file is not None:
        name = "stdin" if o.path_to_json_file == STDIN else o.path_to_json_file
        wanted = parse_election(read_text(o.path_to_json_file, sys.stdin), name, name_of=o.name_of)
    with connect(o.zookeeper, cluster_id=o.cluster_id, zk_max_bytes=o.zk_max_bytes) as zk:
        view = read_cluster(zk, None if wanted is None else {p.topic for p in wanted})
        if o.topic is not None:
            chosen = set(topic_names.meant(view.topics, o.topic))
            wanted = tuple(p for p in view.partitions() if p.topic in chosen)
            if o.report:
                if not chosen:
                    o.out.note(no_topic_text(o.topic, list(view.topics)))
                view = replace(view, topics={name: view.topics[name] for name in chosen})
        if o.report:
            o.out.show(report_answer(view, o.threshold))
            o.out.note(CAUTION)
            return 0
        selection = election.select(view, wanted, preferring=o.broker, only_imbalanced=o.only_imbalanced)
        _say_what_is_left_out(o, selection)
        batches = split_election(selection.partitions, max_bytes=o.max_json_size, max_count=o.batch_partitions)
        if o.write_json:
            _write(o.out, o.write_json, batches)
            return 0
        if batches and not o.force:
            election.check_can_start(selection)
        if not o.dry_run:
            return _elect(o, zk, selection, batches)
        ops = [Create(PreferredElectionZnode.PATH, PreferredElectionZnode.encode(batch)) for batch in batches]
        show_planned(o.out, zk, ops)
    return 0


# --- electing --------------------------------------------------------------------------------------------------


def _elect(o: Options, zk: ZooKeeper, selection: Selection, batches: Sequence[Sequence[TopicPartition]]) -> int:
    asked = told = 0
    begun = time.monotonic()

    def on_asking() -> None:
        nonlocal asked
        asked += 1

    def on_batch(batch: Sequence[TopicPartition]) -> None:
        nonlocal told
        told += 1
        names = [o.name_of(p) for p in batch]
        o.out.line(f"Created preferred replica election path with {','.join(names)}")
        o.out.line(f"Successfully started preferred replica election for partitions Set({', '.join(names)})")
        if len(batches) > 1:
            o.out.note(batch_text(batches, told, time.monotonic() - begun))

    try:
        with interruptions_kept():
            result = election.run(
                zk,
                selection,
                batches,
                timeout_s=o.timeout,
                wait=not o.no_wait,
                interval_s=o.interval,
                on_asking=on_asking,
                on_batch=on_batch,
                name_of=o.name_of,
            )
    except KeyboardInterrupt:
        _say_how_to_go_on(o, asked, told, len(batches))
        raise
    if result.stopped and not told:
        return _failed(o, RefusedError(result.stopped), selection.view.cluster_id)
    o.out.lines(
        f"Skipping preferred replica leader election for partition {o.name_of(p)} since it doesn't exist."
        for p in selection.unknown
    )
    _show(o, result, selection)
    return _exit_code(o, result)


def _say_how_to_go_on(o: Options, asked: int, sent: int, batches: int) -> None:
    """Tell after Ctrl-C how to elect the rest: the controller ends the batch it has; there is nothing to clean up.

    More ``asked`` than ``sent``: a create was under way, and ZooKeeper may have carried it out.
    """
    if not asked:
        o.out.note("nothing was asked for")
        return
    perhaps = ", the next perhaps too" if asked > sent else ""
    stdin = o.path_to_json_file == STDIN
    rest = "To elect the rest" + (", FILE being what was on stdin" if stdin else "")
    o.out.note(f"{sent} of {batches} batches were sent{perhaps}; the controller ends the last without kt. {rest}:")
    chosen = f" --path-to-json-file {shlex.quote(o.path_to_json_file)}" if o.path_to_json_file else ""
    chosen += f" --topic {shlex.quote(o.topic)}" if o.topic is not None else ""
    chosen += f" --broker {o.broker}" if o.broker is not None else ""
    how = f" --batch-partitions {o.batch_partitions}" if o.batch_partitions else ""
    how += f" --interval {o.interval:g}" if o.interval else ""
    how += " --force" if o.force else ""
    how += " < FILE" if stdin else ""
    rest = f"{chosen} --only-imbalanced{how}".strip()
    o.out.note(to_type("elect", o.zookeeper, o.cluster_id, rest=rest))


def _exit_code(o: Options, result: ElectionResult) -> int:
    """Return 0 only when every partition asked for is led by its preferred replica, or was not waited for."""
    if not result.items:
        return 0 if o.only_imbalanced else 1  # nothing to improve is well; nothing to elect is not what was asked for
    if o.no_wait and result.stopped is None:
        return 0 if all(item.status is Outcome.PENDING for item in result.items) else 1
    return 0 if result.all_led_by_preferred else 1


def _show(o: Options, result: ElectionResult, selection: Selection) -> None:
    if result.stopped:
        o.out.note(result.stopped)
    if not o.no_wait and (found := "\n".join(outcome_lines(result.items, o.name_of))):
        o.out.note(found)  # at once: thousands of writes take as long as the election
    counts = Counter[str](item.status for item in result.items)
    o.out.note(counted(counts) or _why_none(o, selection))
    items = [] if o.out.is_text else [outcome_item(item) for item in result.items]
    errors = [error_item(RefusedError(result.stopped))] if result.stopped else []
    o.out.show(Answer((), items, COLUMNS, selection.view.cluster_id, errors))


def _why_none(o: Options, selection: Selection) -> str:
    if selection.skipped or selection.never_led or selection.unknown:
        return "no partition to elect"
    if o.topic is not None and not topic_names.meant(selection.view.topics, o.topic):
        return f"no partition to elect: {no_topic_text(o.topic, list(selection.view.topics))}"
    if o.broker is not None:
        registered = join_ids(sorted(selection.view.brokers), ", ") or "none"
        return f"no partition to elect: none prefers broker {o.broker}; registered brokers: {registered}"
    where = "the file names none" if o.path_to_json_file else "there is none"
    return f"no partition to elect: {where}"


def _say_what_is_left_out(o: Options, selection: Selection) -> None:
    for partition in selection.never_led:
        o.out.note(
            f"{o.name_of(partition)} never had a leader and is left out: a controller breaks an election off at it"
        )
    if selection.skipped:
        o.out.note(f"left out as an election would not change them: {counted(selection.skipped)}")


def _failed(o: Options, error: KafkatoolError, cluster_id: str | None = None) -> int:
    """Print Kafka's two lines on stdout (ELE-6). Return the exit code."""
    return o.out.failed(error, text=f"{FAILED_TO_START}\n{error}", cluster_id=cluster_id)


# --- selecting only ------------------------------------------------------------------------------------------


def _write(out: Output, path: Path, batches: Sequence[Sequence[TopicPartition]]) -> None:
    """Save the selection as files of ELE-2: numbered when there are several (ELE-19X)."""
    for number, batch in enumerate(batches or [()], 1):
        file = path if len(batches) <= 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
        write_file(file, election_json(batch))
        out.note(f"wrote {in_number(len(batch), 'partition', 'partitions')} to {file}")
    items = [{"topic": t, "partition": p} for batch in batches for t, p in batch]
    out.show(Answer((), items, ("topic", "partition")))
