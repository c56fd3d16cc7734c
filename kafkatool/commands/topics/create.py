"""``kt topics create`` (TOP-1 to TOP-7, TOP-23X, TOP-24X, TOP-30X)."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_options,
    connect,
    output_option,
    read_cluster_id,
    show_planned,
    writing_options,
)
from kafkatool.commands.shared.output import Answer, Output
from kafkatool.commands.topics.flags import (
    CONFIG_DEFINITIONS,
    config_option,
    failed,
    known_to_brokers,
    note_unwritable,
    racks_option,
)
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.topic_configs import parse_configs

KAFKAS_SPREAD: Final = {"start_index": None, "replica_shift": None, "rack_aware": True}  # then the controller's own


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics create --zookeeper zk1:2181/kafka --topic orders --partitions 6 --replication-factor 3 \\",
        "    --config retention.ms=86400000",
        "kt topics create --zookeeper zk1:2181/kafka --topic orders --replica-assignment 1:2,2:3,3:1",
    ),
    columns=("topic", "partition", "replicas"),
    definitions=CONFIG_DEFINITIONS,
)
@cluster_options
@click.option("--topic", required=True, metavar="NAME", help="1 to 249 characters of A-Z a-z 0-9 . _ -")
@click.option("--partitions", type=int, help="Number of partitions.")
@click.option("--replication-factor", type=int, help="Replicas of each partition.")
@click.option("--replica-assignment", metavar="B:B,B:B,…", help="Brokers of each partition, the preferred one first.")
@config_option
@click.option("--if-not-exists", is_flag=True, help="No error if the topic is there already.")
@racks_option
@click.option("--start-index", type=click.IntRange(min=0), help="Place of partition 0's first replica, else random.")
@click.option("--replica-shift", type=click.IntRange(min=0), help="Distance of further replicas, else random.")
@writing_options
@output_option
def create(
    out: Output,
    zookeeper: str,
    bootstrap: Bootstrap | None,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config: Sequence[str],
    if_not_exists: bool,
    disable_rack_aware: bool,
    start_index: int | None,
    replica_shift: int | None,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> int:
    """Create a topic, its config and its replica assignment in one transaction."""
    numbers = {
        "--partitions": partitions,
        "--replication-factor": replication_factor,
        "--start-index": start_index,
        "--replica-shift": replica_shift,
    }
    if bootstrap is not None:
        _check_request_flags(replica_assignment, numbers, disable_rack_aware)
    else:
        _check_flags(replica_assignment, numbers)
    from kafkatool.core.model import topic_names as names
    from kafkatool.core.operations.topics import creation, replica_lists

    try:
        if bootstrap is not None:
            from kafkatool.commands.topics import by_request
            from kafkatool.core.operations.requests.topics import NewTopic

            configs = by_request.parse_pairs(config)
        else:
            configs = parse_configs(config)
        groups = None if replica_assignment is None else replica_lists.parse_replica_lists(replica_assignment)
    except RefusedError as e:
        return failed(out, e, topic=topic)
    if bootstrap is not None:
        spread = {"start_index": start_index, "replica_shift": replica_shift, "rack_aware": not disable_rack_aware}
        return by_request.create(
            out,
            bootstrap,
            NewTopic(
                topic, partitions, replication_factor, None if groups is None else dict(enumerate(groups)), configs
            ),
            if_not_exists=if_not_exists,
            dry_run=dry_run,
            cluster_id=cluster_id,
            spread=spread if spread != KAFKAS_SPREAD else None,
        )
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        try:
            if if_not_exists:
                creation.check_absent(zk, topic)  # says nothing else about a topic that is there
            if names.has_collision_chars(topic):
                out.line(names.COLLISION_WARNING)
            if groups is not None:
                assignment = dict(enumerate(groups))
            else:
                assert partitions is not None and replication_factor is not None
                assignment = creation.plan_spread(
                    zk,
                    partitions,
                    replication_factor,
                    start_index=start_index,
                    replica_shift=replica_shift,
                    rack_aware=not disable_rack_aware,
                )
            also = known_to_brokers(out, zk, configs)
            planned = creation.plan_creation(zk, topic, assignment, configs, known_to_brokers=also)
            note_unwritable(out, configs, assignment)
            if dry_run:
                show_planned(out, zk, planned.ops)
                if groups is None and None in (start_index, replica_shift):
                    drawn = ",".join(":".join(map(str, assignment[p])) for p in sorted(assignment))
                    out.note(
                        f"drawn at random, and drawn anew without --dry-run; to keep it: --replica-assignment {drawn}"
                    )
                return 0
            creation.commit_creation(zk, planned)
        except creation.TopicExistsError as e:
            if e.marked:
                out.note(f"note: topic {topic} is marked for deletion; once it is gone it can be created anew")
            if not if_not_exists:
                return failed(out, e, topic=topic, marked_for_deletion=e.marked)
            out.show(Answer((), ()))
            return 0
        except RefusedError as e:
            return failed(out, e, topic=topic)
        items = [{"topic": topic, "partition": p, "replicas": list(r)} for p, r in assignment.items()]
        done = [f'Created topic "{topic}".']
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
        out.show(Answer(done, items, cluster_id=id_of_cluster))
    return 0


def _check_flags(replica_assignment: str | None, numbers: Mapping[str, int | None]) -> None:
    """Check that there are brokers by hand, or numbers to spread by. Raises UsageError (TOP-2)."""
    given = [flag for flag, number in numbers.items() if number is not None]
    if replica_assignment is None and given[:2] != ["--partitions", "--replication-factor"]:
        raise UsageError("create needs --partitions and --replication-factor, or --replica-assignment")
    if replica_assignment is not None and given:
        raise UsageError(f"--replica-assignment can't be used with {given[0]}")


def _check_request_flags(replica_assignment: str | None, numbers: Mapping[str, int | None], ignore_racks: bool) -> None:
    """Check the same where the controller can spread by itself, by its own numbers too. Raises UsageError (ADM-25)."""
    given = [flag for flag, number in numbers.items() if number is not None]
    if replica_assignment is not None and given:
        option = given[0].removeprefix("--")
        raise UsageError(f'Option "[replica-assignment]" can\'t be used with option "[{option}]"')
    spreads = ignore_racks or {"--start-index", "--replica-shift"}.intersection(given)
    if spreads and given[:2] != ["--partitions", "--replication-factor"]:
        raise UsageError("to spread replicas itself kt needs --partitions and --replication-factor")
