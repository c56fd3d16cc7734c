"""``kt topics alter`` and ``kt topics delete`` (TOP-14 to TOP-18, TOP-24X, TOP-28X)."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkatool.commands.shared.options import (
    KtCommand,
    connect,
    output_option,
    read_cluster_id,
    writing_options,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.topics.flags import (
    CONFIG_DEFINITIONS,
    config_option,
    fail,
    failure_text,
    matching,
    note_ignored_configs,
    pattern_option,
    racks_option,
)
from kafkatool.core.errors import RefusedError, UsageError
from kafkatool.core.model.topic_configs import check_names, parse_configs

if TYPE_CHECKING:
    from kafkatool.core.zookeeper.session import Op, ZooKeeper

GROWTH_WARNING: Final = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
    "messages will be affected"
)


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics alter --zookeeper zk1:2181/kafka --topic orders --partitions 12",
        "kt topics alter --zookeeper zk1:2181/kafka --topic orders --config retention.ms=3600000 \\",
        "    --delete-config segment.bytes",
    ),
    columns=("topic", "change", "value"),
    notes=(
        "change is configs (value: the whole new config), partitions (value: brokers of each added one) or "
        "replication_factor (value: brokers of each partition that changes; kt reassign --verify follows it).",
    ),
    definitions=CONFIG_DEFINITIONS,
)
@zookeeper_option
@pattern_option(required=True)
@click.option("--partitions", type=int, help="Number of partitions after the command.")
@click.option("--replication-factor", type=int, help="Replicas of each partition: plans and starts a reassignment.")
@click.option("--replica-assignment", metavar="B:B,B:B,…", help="With --partitions: brokers of every partition.")
@config_option
@click.option("--delete-config", metavar="NAME", multiple=True, help="Override to drop; repeatable.")
@click.option("--if-exists", is_flag=True, help="No error if no topic matches.")
@racks_option
@writing_options
@output_option
def alter(
    out: Output,
    zookeeper: str,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    config: Sequence[str],
    delete_config: Sequence[str],
    if_exists: bool,
    disable_rack_aware: bool,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> None:
    """Change overrides, add partitions, or change the number of replicas."""
    if partitions is None and replica_assignment:
        raise UsageError("--replica-assignment needs --partitions")
    if replication_factor is not None and partitions is not None:
        raise UsageError("--replication-factor can't be used with --partitions: one after the other")
    if partitions is None and replication_factor is None and not (config or delete_config):
        raise UsageError("alter needs --partitions, --replication-factor, --config or --delete-config")
    from kafkatool.core.model.topic_names import OFFSETS_TOPIC
    from kafkatool.core.operations.topics import changes as operation

    try:
        configs = parse_configs(config)
        removed = [name.strip() for name in delete_config]
        check_names(removed)
        groups = operation.parse_replica_lists(replica_assignment) if replica_assignment else None
    except RefusedError as e:
        fail(out, e, topic=topic)
    note_ignored_configs(out, configs)
    items: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    planned: list[Any] = []
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
        names = matching(out, zk, topic, zookeeper, if_exists=if_exists)
        for name in names:
            try:
                if config or delete_config:
                    if dry_run:
                        planned += operation.plan_config_change(zk, name, configs, removed).ops
                    else:
                        change = operation.change_configs(zk, name, configs, removed)
                        items.append({"topic": name, "change": "configs", "value": dict(change.configs)})
                        out.line(f'Updated config for topic "{name}".')
                if partitions is not None:
                    rules = {"groups": groups, "rack_aware": not disable_rack_aware}
                    if name != OFFSETS_TOPIC and not dry_run:
                        out.line(GROWTH_WARNING)
                    if dry_run:
                        planned += operation.plan_growth(zk, name, partitions, **rules).ops  # type: ignore[arg-type]
                    else:
                        growth = operation.grow(zk, name, partitions, **rules)  # type: ignore[arg-type]
                        added = {str(p): list(r) for p, r in growth.added.items()}
                        items.append({"topic": name, "change": "partitions", "value": added})
                        out.line("Adding partitions succeeded!")
            except RefusedError as e:
                out.line(failure_text(e))
                errors.append(error_item(e, topic=name))
        if replication_factor is not None and not errors:
            planned += _change_factor(out, zk, names, replication_factor, items, errors, dry_run=dry_run)
    _finish(out, items, errors, planned, ("topic", "change", "value"), id_of_cluster, dry_run=dry_run)


def _change_factor(
    out: Output,
    zk: "ZooKeeper",
    names: Sequence[str],
    replication_factor: int,
    items: list[dict[str, Any]],
    errors: list[dict[str, Any]],
    *,
    dry_run: bool,
) -> list["Op"]:
    """One reassignment for all topics (TOP-29X): the way back and the plan are told before it starts."""
    from kafkatool.core.operations.reassignment import submission
    from kafkatool.core.operations.topics.changes import plan_replication_factor
    from kafkatool.core.planner.plan_files import CURRENT_ASSIGNMENT, PROPOSED_ASSIGNMENT, plan_json

    try:
        plan = plan_replication_factor(zk, names, replication_factor)
        if not plan:
            out.note(f"note: every partition has {replication_factor} replicas already")
            return []
        prepared = submission.prepare(zk, plan)
        if dry_run:
            return prepared.ops
        if prepared.running is not None:
            raise RefusedError("There is an existing assignment running.")
        out.line(f"{CURRENT_ASSIGNMENT}\n\n{plan_json(prepared.current)}\n")
        out.line(f"{PROPOSED_ASSIGNMENT}\n{plan_json(plan)}")
        submission.start(zk, prepared)
    except RefusedError as e:
        out.line(failure_text(e))
        errors.append(error_item(e, topic=",".join(names)))
        return []
    out.line(f"Successfully started reassignment of partitions {plan_json(plan)}")
    for name in names:
        value = {str(p.partition): list(replicas) for p, replicas in plan.items() if p.topic == name}
        items.append({"topic": name, "change": "replication_factor", "value": value})
    return []


def _finish(
    out: Output,
    items: list[dict[str, Any]],
    errors: list[dict[str, Any]],
    planned: list[Any],
    columns: Sequence[str],
    cluster_id: str | None,
    *,
    dry_run: bool,
) -> None:
    """The text is out already, line by line as things happened; the other forms are told at once here."""
    if dry_run and not errors:
        from kafkatool.core.zookeeper.znodes import ConfigChangeZnode

        out.planned(planned, sequential_paths=(ConfigChangeZnode.PREFIX,))
    elif not out.is_text:
        out.show(Answer((), items, columns, cluster_id, errors))
    if errors:
        out.exit(1)


@click.command(
    cls=KtCommand,
    examples=(
        "kt topics delete --zookeeper zk1:2181/kafka --topic orders --wait 60",
        "kt topics delete --zookeeper zk1:2181/kafka --topic 'test-.*' --dry-run",
    ),
    columns=("topic", "status"),
    notes=("status is marked, already_marked or, with --wait, deleted.",),
)
@zookeeper_option
@pattern_option(required=True)
@click.option("--if-exists", is_flag=True, help="No error if no topic matches.")
@click.option("--force", is_flag=True, help="Ask nothing.")
@click.option(
    "--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for the topics to be gone; else exit 1."
)
@writing_options
@output_option
def delete(
    out: Output,
    zookeeper: str,
    topic: str,
    if_exists: bool,
    force: bool,
    wait: float | None,
    dry_run: bool,
    cluster_id: str | None,
    zk_max_bytes: int,
) -> None:
    """Mark topics for deletion; the controller deletes them if delete.topic.enable is true."""
    from kafkatool.core.operations.topics import changes as operation
    from kafkatool.core.operations.topics import deletion as topic_deletion

    status: dict[str, str] = {}
    errors: list[dict[str, Any]] = []
    with connect(zookeeper, cluster_id=cluster_id, zk_max_bytes=zk_max_bytes) as zk:
        id_of_cluster = None if out.is_text else read_cluster_id(zk)
        found = matching(out, zk, topic, zookeeper, if_exists=if_exists)
        if dry_run:
            try:
                out.planned([operation.plan_deletion(name) for name in found])
            except RefusedError as e:
                fail(out, e, topic=topic)
            return
        if len(found) > 1 and not force and sys.stdin.isatty():
            question = f"Mark {len(found)} topics for deletion: {', '.join(found)}?"
            if not click.confirm(question, err=True):
                raise RefusedError("no topic was marked for deletion")
        for name in found:
            try:
                operation.mark_for_deletion(zk, name)
                status[name] = "marked"
                out.line(f"Topic {name} is marked for deletion.")
                out.line("Note: This will have no impact if delete.topic.enable is not set to true.")
            except operation.MarkedForDeletionError as e:
                status[name] = "already_marked"
                out.line(str(e))
            except RefusedError as e:
                out.line(failure_text(e))
                errors.append(error_item(e, topic=name))
        if wait is not None:
            with out.progress("deleting") as update:
                left = topic_deletion.wait_until_gone(zk, status, wait, update)
            gone = [name for name in status if name not in {item.topic for item in left}]
            status |= dict.fromkeys(gone, "deleted")
            if gone:
                out.note(f"gone: {', '.join(gone)}")
            for item in left:
                out.note(str(item))
                errors.append({"topic": item.topic, "error": "still_there", "message": str(item)})
    items = [{"topic": name, "status": s} for name, s in status.items()]
    _finish(out, items, errors, [], ("topic", "status"), id_of_cluster, dry_run=False)
