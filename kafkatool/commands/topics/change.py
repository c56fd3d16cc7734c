"""``kt topics alter`` and ``kt topics delete`` (TOP-14 to TOP-18, TOP-24X, TOP-28X)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkatool.commands.completion import complete_configs
from kafkatool.commands.shared.bootstrap import Bootstrap
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_options,
    connect,
    output_option,
    read_cluster_id,
    to_type,
    writing_options,
)
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.topics.flags import (
    CONFIG_DEFINITIONS,
    agree,
    config_option,
    failed,
    failure_text,
    force_option,
    known_to_brokers,
    matching,
    pattern_option,
    racks_option,
)
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.topic_configs import check_names, parse_configs
from kafkatool.core.model.values import in_number

if TYPE_CHECKING:
    from kafkatool.core.zookeeper.session import Op, ZooKeeper

Rows = list[dict[str, Any]]

GROWTH_WARNING: Final = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
    "messages will be affected"
)

NAME_LENGTH: Final = 150  # a topic's may have 249 characters, a file's 255, and kt reassign puts its endings behind it


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics alter --zookeeper zk1:2181/kafka --topic orders --partitions 12",
        "kt topics alter --zookeeper zk1:2181/kafka --topic orders --config retention.ms=3600000 \\",
        "    --delete-config segment.bytes",
    ),
    columns=("topic", "change", "value", "before"),
    notes=(
        "change is configs (value: the whole new config), partitions (value: brokers of each added one) or "
        "replication_factor (value: brokers of each partition that changes, before: those it had; kt reassign --verify "
        "follows it). The way back is saved as TOPIC.replication-factor-R.rollback.json before it starts, for kt reassign "
        "--execute; an earlier one is kept beside it. Of several topics the name tells how many, and a hash of theirs.",
    ),
    definitions=CONFIG_DEFINITIONS,
)
@cluster_options
@pattern_option(required=True)
@click.option("--partitions", type=int, help="Number of partitions after the command.")
@click.option("--replication-factor", type=int, help="Replicas of each partition: plans and starts a reassignment.")
@click.option("--replica-assignment", metavar="B:B,B:B,…", help="With --partitions: brokers of every partition.")
@config_option
@click.option(
    "--delete-config",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_configs,
    help="Override to drop; repeatable.",
)
@click.option("--if-exists", is_flag=True, help="No error if no topic matches.")
@force_option
@racks_option
@writing_options
@output_option
def alter(
    out: Output,
    zookeeper: str,
    bootstrap: Bootstrap | None,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config: Sequence[str],
    delete_config: Sequence[str],
    if_exists: bool,
    force: bool,
    disable_rack_aware: bool,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> int:
    """Change overrides, add partitions, or change the number of replicas."""
    if partitions is None and replica_assignment is not None:
        raise UsageError("--replica-assignment needs --partitions")
    if replication_factor is not None and partitions is not None:
        raise UsageError("--replication-factor can't be used with --partitions: one after the other")
    if partitions is None and replication_factor is None and not (config or delete_config):
        raise UsageError("alter needs --partitions, --replication-factor, --config or --delete-config")
    from kafkatool.core.model.topic_names import OFFSETS_TOPIC
    from kafkatool.core.operations.topics import configs as topic_configs
    from kafkatool.core.operations.topics import growth as topic_growth
    from kafkatool.core.operations.topics.permission import check_may_alter
    from kafkatool.core.operations.topics.replica_lists import parse_replica_lists

    if bootstrap is not None:
        from kafkatool.commands.topics import by_request

        if replication_factor is not None:
            raise UsageError("--replication-factor needs --zookeeper")
    try:
        configs = parse_configs(config) if bootstrap is None else by_request.parse_pairs(config)
        removed = [name.strip() for name in delete_config]
        groups = None if replica_assignment is None else parse_replica_lists(replica_assignment)
    except RefusedError as e:
        return failed(out, e, topic=topic)
    if bootstrap is not None:
        return by_request.alter(
            out,
            bootstrap,
            topic,
            partitions=partitions,
            groups=groups,
            configs=configs,
            removed=removed,
            if_exists=if_exists,
            force=force,
            dry_run=dry_run,
            cluster_id=cluster_id,
        )
    items: Rows = []
    errors: Rows = []
    planned: list[Op] = []
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
        try:
            also = known_to_brokers(out, zk, [*configs, *removed])
            check_names([*configs, *removed], also)
            names = matching(zk, topic, zookeeper, if_exists=if_exists)
            agree(names, f"Change {len(names)} topics", force=force or dry_run)
        except RefusedError as e:
            return failed(out, e, topic=topic)
        check_may_alter(
            zk,
            names,
            configs=bool(config or delete_config),
            partitions=partitions is not None,
            replication_factor=replication_factor is not None,
        )
        for name in names:
            try:
                if config or delete_config:
                    merge = topic_configs.plan_config_change if dry_run else topic_configs.change_configs
                    change = merge(zk, name, configs, removed, known_to_brokers=also)
                    if dry_run:
                        planned += change.ops
                    else:
                        items.append({"topic": name, "change": "configs", "value": dict(change.config)})
                        out.line(f'Updated config for topic "{name}".')
                if partitions is not None:
                    if name != OFFSETS_TOPIC and not dry_run:
                        out.line(GROWTH_WARNING)
                    add = topic_growth.plan_growth if dry_run else topic_growth.grow
                    growth = add(zk, name, partitions, groups=groups, rack_aware=not disable_rack_aware)
                    if dry_run:
                        planned += growth.ops
                    else:
                        added = {str(p): list(r) for p, r in growth.added.items()}
                        items.append({"topic": name, "change": "partitions", "value": added})
                        out.line("Adding partitions succeeded!")
            except RefusedError as e:
                _tell_refused(out, e, errors, topic=name)
        if replication_factor is not None and not errors:
            planned += _change_factor(
                out,
                zk,
                names,
                replication_factor,
                items,
                errors,
                reassign=lambda flags: to_type("reassign", zookeeper, cluster_id, rest=flags),
                dry_run=dry_run,
            )
    return _finish(out, items, errors, id_of_cluster, planned if dry_run else None)


def _change_factor(
    out: Output,
    zk: "ZooKeeper",
    names: Sequence[str],
    factor: int,
    items: Rows,
    errors: Rows,
    *,
    reassign: Callable[[str], str],
    dry_run: bool,
) -> list["Op"]:
    """Start one reassignment for all topics (TOP-29X); before it starts the way back is saved, and the plan printed.

    ``reassign`` writes the command that carries out a plan, given its flags.
    """
    from kafkatool.core.operations.reassignment import submission
    from kafkatool.core.operations.topics.growth import plan_replication_factor
    from kafkatool.core.planner.plan_files import CURRENT_ASSIGNMENT, PROPOSED_ASSIGNMENT, plan_json, write_file

    try:
        plan = plan_replication_factor(zk, names, factor)
        if not plan:
            out.note(f"note: every partition has {in_number(factor, 'replica', 'replicas')} already")
            return []
        prepared = submission.prepare(zk, plan)
        if prepared.running is not None:
            raise RefusedError("There is an existing assignment running.", now=submission.SHOWN_BY_LIST)
        if dry_run:
            return prepared.ops
        file = _way_back_file(sorted({p.topic for p in plan}), factor)
        kept = write_file(file, plan_json(prepared.way_back))
        out.note(f"rollback plan: {file}" + (f"; the one of an earlier command is kept as {kept}" if kept else ""))
        out.line(f"{CURRENT_ASSIGNMENT}\n\n{plan_json(prepared.current)}\n")
        out.line(f"{PROPOSED_ASSIGNMENT}\n{plan_json(plan)}")
        submission.start(zk, prepared)
    except RefusedError as e:
        _tell_refused(out, e, errors, topic=",".join(names))
        return []
    out.line(f"Successfully started reassignment of partitions {plan_json(plan)}")
    out.note(f"{reassign(f'--execute --reassignment-json-file {file}')}  # go back, once it has ended")
    for name in names:
        changed = [p for p in plan if p.topic == name]
        value = {str(p.partition): list(plan[p]) for p in changed}
        before = {str(p.partition): list(prepared.current[p]) for p in changed}
        items.append({"topic": name, "change": "replication_factor", "value": value, "before": before})
    return []


def _way_back_file(topics: Sequence[str], factor: int) -> Path:
    """Name it after what it moves back, so that the command told for one topic never moves another."""
    import hashlib

    known_by = topics[0] if len(topics) == 1 else f"{len(topics)}-topics"
    if len(topics) > 1 or len(known_by) > NAME_LENGTH:
        known_by = f"{known_by[:NAME_LENGTH]}-{hashlib.sha256(','.join(topics).encode()).hexdigest()[:8]}"
    return Path(f"{known_by}.replication-factor-{factor}.rollback.json")


def _tell_refused(out: Output, error: RefusedError, errors: Rows, *, topic: str) -> None:
    """Print the error in Kafka's words and what to do now, and note it for the answer; others may still succeed."""
    out.line(failure_text(error))
    if error.now is not None:
        out.note(error.now)
    errors.append(error_item(error, topic=topic))


def _finish(out: Output, items: Rows, errors: Rows, cluster_id: str | None, planned: list["Op"] | None = None) -> int:
    """Show the answer in the forms other than text, which was printed as things happened. Return the exit code."""
    if planned is not None:
        from kafkatool.core.zookeeper.znodes import ConfigChangeZnode

        out.planned(planned, sequential_paths=(ConfigChangeZnode.PREFIX,), errors=errors)
    elif not out.is_text:
        out.show(Answer((), items, cluster_id=cluster_id, errors=errors))
    return 1 if errors else 0


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics delete --zookeeper zk1:2181/kafka --topic orders --wait 60",
        "kt topics delete --zookeeper zk1:2181/kafka --topic 'test-.*' --dry-run",
    ),
    columns=("topic", "status"),
    notes=("status is marked, already_marked or, with --wait, deleted.",),
)
@cluster_options
@pattern_option(required=True)
@click.option("--if-exists", is_flag=True, help="No error if no topic matches.")
@force_option
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for the topics to be gone; else exit 1."
)
@writing_options
@output_option
def delete(
    out: Output,
    zookeeper: str,
    bootstrap: Bootstrap | None,
    topic: str,
    if_exists: bool,
    force: bool,
    wait: float | None,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> int:
    """Mark topics for deletion; the controller deletes them if delete.topic.enable is true."""
    if bootstrap is not None:
        from kafkatool.commands.topics import by_request

        return by_request.delete(
            out,
            bootstrap,
            topic,
            if_exists=if_exists,
            force=force,
            wait_s=wait,
            dry_run=dry_run,
            cluster_id=cluster_id,
        )
    from kafkatool.core.operations.topics import deletion

    status: dict[str, str] = {}
    errors: Rows = []
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
        try:
            found = matching(zk, topic, zookeeper, if_exists=if_exists)
            agree(found, f"Mark {len(found)} topics for deletion", force=force or dry_run)
        except RefusedError as e:
            return failed(out, e, topic=topic)
        planned: list[Op] = []
        for name in found:
            try:
                if dry_run:
                    planned.append(deletion.plan_deletion(zk, name))
                    continue
                deletion.mark_for_deletion(zk, name)
                status[name] = "marked"
                out.line(f"Topic {name} is marked for deletion.")
                out.line("Note: This will have no impact if delete.topic.enable is not set to true.")
            except deletion.MarkedForDeletionError as e:
                status[name] = "already_marked"
                out.line(str(e))
            except RefusedError as e:
                out.line(failure_text(e))
                errors.append(error_item(e, topic=name))
        if dry_run:
            zk.check_permitted(planned)
        if wait is not None and not dry_run:
            with out.progress("deleting") as update:
                left = deletion.wait_until_gone(zk, status, wait, update)
            gone = [name for name in status if name not in {item.topic for item in left}]
            status |= dict.fromkeys(gone, "deleted")
            if gone:
                out.note(f"gone: {', '.join(gone)}")
            for item in left:
                out.note(str(item))
                errors.append({"topic": item.topic, "error": "still_there", "message": str(item)})
    items = [{"topic": name, "status": s} for name, s in status.items()]
    return _finish(out, items, errors, id_of_cluster, planned if dry_run else None)
