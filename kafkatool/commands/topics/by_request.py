"""``kt topics`` with ``--bootstrap-server``: the words of Kafka's own tool of 3.9 (ADM-22 to ADM-31).

Each action here is the same command with its flags read; what it shows is rendered as with ZooKeeper.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkatool.commands.shared.bootstrap import Bootstrap, connect_brokers
from kafkatool.commands.shared.options import no_topic_text
from kafkatool.commands.shared.output import Answer, Output, error_item
from kafkatool.commands.topics.flags import agree, failed, failure_text
from kafkatool.commands.topics.rendering import REQUEST_KEYS, description_lines, header, header_item, partition_item
from kafkatool.core.errors import BrokerAnswerError, NotPermittedError, RefusedError, UsageError
from kafkatool.core.model.topic_names import COLLISION_WARNING, KEPT, has_collision_chars, is_legal, names_in, select
from kafkatool.core.model.uuids import parse_uuid
from kafkatool.core.operations.requests import planned, topics
from kafkatool.core.operations.requests.topic_reading import Topic, missing, read_meant, read_topics
from kafkatool.core.operations.requests.topics import NewTopic
from kafkatool.core.operations.topics.description import FILTERS
from kafkatool.core.operations.topics.replica_lists import check_replica_lists
from kafkatool.core.protocol.codec.types import NO_UUID
from kafkatool.core.protocol.messages import create_partitions, create_topics, delete_topics, incremental_alter_configs
from kafkatool.core.protocol.messages.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient

POLL_S: Final = 0.5
MAX_FACTOR: Final = 32767
HEADERS_ONLY: Final = "topics-with-overrides"


# --- list and describe -----------------------------------------------------------------------------------------


def list_topics(out: Output, bootstrap: Bootstrap, pattern: str | None, *, exclude_internal: bool) -> int:
    """Show the names of topics."""
    out.is_listing = True
    with connect_brokers(bootstrap) as client:
        found = read_topics(client)
        cluster_id = client.cluster_id
    try:
        names = select(found, pattern)
    except RefusedError as e:
        return failed(out, e)
    names = [t for t in names if not (exclude_internal and found[t].is_internal)]
    items = [{"topic": t, "marked_for_deletion": None, "internal": found[t].is_internal} for t in names]
    out.show(Answer(names, items, cluster_id=cluster_id))
    return 0


def describe(
    out: Output,
    bootstrap: Bootstrap,
    pattern: str | None,
    topic_id: str | None,
    filters: Sequence[str],
    *,
    exclude_internal: bool,
    if_exists: bool,
    page_partitions: int,
) -> int:
    """Show headers and partitions, or the rows that any of the filters selects."""
    if HEADERS_ONLY in filters and len(filters) > 1:
        raise UsageError(f"--{HEADERS_ONLY} can't be used with --{next(f for f in filters if f != HEADERS_ONLY)}")
    wanted_id = _parse_id(topic_id)
    out.is_listing = not filters  # a filter is a question about all topics
    with connect_brokers(bootstrap) as client:
        existing = read_topics(client, ids=wanted_id is not None)
        try:
            found = _chosen(client, out, existing, pattern, topic_id, wanted_id)
        except RefusedError as e:
            may_be_there = isinstance(e, NotPermittedError)
            return 0 if if_exists and not may_be_there else failed(out, e, topic=pattern)
        found = {n: t for n, t in found.items() if not (exclude_internal and t.is_internal)}
        described = topics.describe(client, found, page_partitions=page_partitions, paged=wanted_id is None)
        cluster_id = client.cluster_id
    if HEADERS_ONLY in filters:
        shown = [t for t in described if t.configs]
        out.show(Answer((header(t, by_request=True) for t in shown), [header_item(t) for t in shown], (), cluster_id))
        return 0
    rows = [(t, [p for p in t.partitions if not filters or any(FILTERS[f](p) for f in filters)]) for t in described]
    # Of a topic of 10,000 partitions items that nobody sees took a sixth of kt's own time.
    items = [] if out.is_text else [partition_item(p, t) for t, partitions in rows for p in partitions]
    lines = description_lines(rows, headers=not filters, by_request=True)
    out.show(Answer(lines, items, REQUEST_KEYS, cluster_id))
    return 0


def _parse_id(text: str | None) -> bytes | None:
    """Return the id asked for; None for none, and for the one that says none. Raises UsageError."""
    if text is None:
        return None
    found = parse_uuid(text)
    if found is None:
        raise UsageError(f"--topic-id {text!r} is no id: those have 22 characters of A-Z a-z 0-9 _ -")
    return None if found == NO_UUID else found


def _chosen(
    client: "ClusterClient",
    out: Output,
    existing: Mapping[str, Topic],
    pattern: str | None,
    topic_id: str | None,
    wanted_id: bytes | None,
) -> dict[str, Topic]:
    """Return the topics meant. Raises RefusedError: none is."""
    if wanted_id is not None:
        if pattern is not None:
            out.note("note: --topic-id goes before --topic")
        if found := {n: t for n, t in existing.items() if t.topic_id == wanted_id}:
            return found
        raise RefusedError(f"TopicId '{topic_id}' does not exist as expected")
    names = select(existing, pattern)
    if pattern is not None and not names:
        if is_legal(pattern):
            read_topics(client, [pattern])  # asked for by its name, a broker says whether it may be described
        raise _missing(client, pattern, existing)
    return {n: existing[n] for n in names}


def _missing(client: "ClusterClient", pattern: str, existing: Iterable[str]) -> RefusedError:
    """Return why nothing matches: a name that may not be described is told apart from one that nothing has."""
    text = f"Topic '{pattern}' does not exist as expected"
    return missing(client, pattern, RefusedError(text, now=no_topic_text(pattern, list(existing))))


# --- create ----------------------------------------------------------------------------------------------------


def create(
    out: Output,
    bootstrap: Bootstrap,
    topic: NewTopic,
    *,
    if_not_exists: bool,
    dry_run: bool,
    cluster_id: str | None,
    spread: Mapping[str, Any] | None,
) -> int:
    """Create the topic. ``spread``: kt assigns its replicas itself, in that way (ADM-25)."""
    if has_collision_chars(topic.name):
        out.line(COLLISION_WARNING)
    try:
        _check(topic)
        with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
            if spread is not None:
                topic = _assigned(client, topic, spread)
            if dry_run:
                request = topics.creation_request(client, topic)
                shown = [planned.plan(client, create_topics.API, request, least=topic.least_version)]
                out.planned_requests(shown, judged=topics.check_creation(client, topic))
                return 0
            topics.create(client, topic)
            made = {} if out.is_text else read_topics(client, [topic.name])
            found_id = client.cluster_id
    except BrokerAnswerError as e:
        if e.code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
            out.show(Answer((), ()))
            return 0
        return failed(out, e, topic=topic.name)
    except RefusedError as e:
        return failed(out, e, topic=topic.name)
    assignment = made[topic.name].assignment if topic.name in made else topic.assignment or {}
    items = [{"topic": topic.name, "partition": p, "replicas": list(r)} for p, r in assignment.items()]
    out.show(Answer([f"Created topic {topic.name}."], items, cluster_id=found_id))
    return 0


def _check(topic: NewTopic) -> None:
    """Check what needs no broker. Raises RefusedError with Kafka's text (ADM-23)."""
    if topic.partitions is not None and topic.partitions < 1:
        raise RefusedError("The partitions must be greater than 0")
    if topic.replication_factor is not None and not 1 <= topic.replication_factor <= MAX_FACTOR:
        raise RefusedError(f"The replication factor must be between 1 and {MAX_FACTOR} inclusive")
    if topic.assignment is not None:
        check_replica_lists(list(topic.assignment.values()), shown=lambda ids: str(list(ids)))


def _assigned(client: "ClusterClient", topic: NewTopic, spread: Mapping[str, Any]) -> NewTopic:
    from dataclasses import replace

    from kafkatool.core.operations.topics.spreading import spread_replicas

    assert topic.partitions is not None and topic.replication_factor is not None
    brokers = list(client.brokers.values())
    assignment = spread_replicas(brokers, topic.partitions, topic.replication_factor, **spread)
    return replace(topic, partitions=None, replication_factor=None, assignment=assignment)


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Parse ``k=v`` texts of ``--config``; names and values are the brokers' to judge. Raises RefusedError."""
    configs = {}
    for pair in pairs:
        parts = [part.strip() for part in pair.split("=")]
        if len(parts) != 2 or not parts[0]:
            raise RefusedError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[parts[0]] = parts[1]
    return configs


# --- alter and delete ------------------------------------------------------------------------------------------


def alter(
    out: Output,
    bootstrap: Bootstrap,
    pattern: str,
    *,
    partitions: int | None,
    groups: Sequence[tuple[int, ...]] | None,
    configs: Mapping[str, str],
    removed: Sequence[str],
    if_exists: bool,
    force: bool,
    dry_run: bool,
    cluster_id: str | None,
) -> int:
    """Change configs, then add partitions; each topic by itself."""
    items: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []

    def refused(name: str, error: RefusedError) -> None:
        out.line(failure_text(error))
        errors.append(error_item(error, topic=name))

    with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
        try:
            found = _matching(client, pattern, if_exists=if_exists)
            agree(list(found), f"Change {len(found)} topics", force=force or dry_run)
            changes = bool(configs or removed) and bool(found)
            outcome = (
                topics.change_configs(client, list(found), configs, removed, validate_only=dry_run) if changes else {}
            )
        except RefusedError as e:
            return failed(out, e, topic=pattern)
        if dry_run:
            _plan_alter(out, client, found, outcome, partitions, groups, configs, removed, errors)
            return 1 if errors else 0
        now = topics.read_configs(client, found) if outcome and not out.is_text else {}
        for name, error in outcome.items():
            if error is not None:
                refused(name, error)
                continue
            out.line(f"Updated config for topic {name}.")
            value = dict(now[name].overrides) if name in now else None
            items.append({"topic": name, "change": "configs", "value": value})
        for name, topic in found.items() if partitions is not None else ():
            assert partitions is not None
            try:
                topics.grow(client, topic, partitions, groups)
            except RefusedError as e:
                refused(name, e)
                continue
            if not out.is_text:
                grown = read_topics(client, [name])[name].assignment
                added = {str(p): list(r) for p, r in grown.items() if p not in topic.assignment}
                items.append({"topic": name, "change": "partitions", "value": added})
        found_id = client.cluster_id
    if not out.is_text:
        out.show(Answer((), items, cluster_id=found_id, errors=errors))
    return 1 if errors else 0


def _plan_alter(
    out: Output,
    client: "ClusterClient",
    found: Mapping[str, Topic],
    outcome: Mapping[str, BrokerAnswerError | None],
    partitions: int | None,
    groups: Sequence[tuple[int, ...]] | None,
    configs: Mapping[str, str],
    removed: Sequence[str],
    errors: list[dict[str, Any]],
) -> None:
    """Show the requests, and what brokers say they would refuse; that goes to ``errors`` too."""
    requests = []

    def refused(name: str, error: RefusedError) -> None:
        out.line(failure_text(error))
        errors.append(error_item(error, topic=name))

    if outcome:
        for name, error in outcome.items():
            if error is not None:
                refused(name, error)
        request = topics.config_request(list(found), configs, removed)
        requests.append(planned.plan(client, incremental_alter_configs.API, request))
    for name, topic in found.items() if partitions is not None else ():
        assert partitions is not None
        try:
            topics.grow(client, topic, partitions, groups, validate_only=True)
            growth = topics.growth_request(client, topic, partitions, groups)
        except RefusedError as e:
            refused(name, e)
            continue
        requests.append(planned.plan(client, create_partitions.API, growth))
    out.planned_requests(requests, judged=True, errors=errors)


def delete(
    out: Output,
    bootstrap: Bootstrap,
    pattern: str,
    *,
    if_exists: bool,
    force: bool,
    wait_s: float | None,
    dry_run: bool,
    cluster_id: str | None,
) -> int:
    """Delete all matches by one request; with ``wait_s`` wait until no broker tells of them any more."""
    with connect_brokers(bootstrap, cluster_id=cluster_id) as client:
        try:
            found = _matching(client, pattern, if_exists=if_exists)
            meant = force and names_in(pattern)
            internal = [name for name, topic in found.items() if topic.is_internal and not (meant and name in meant)]
            found = {name: topic for name, topic in found.items() if name not in internal}
            errors = []
            for name in internal:
                kept = RefusedError(KEPT.format(name))
                out.line(failure_text(kept))
                out.note(f"{name}, typed by its name and with --force, is deleted all the same")
                errors.append(error_item(kept, topic=name))
            if dry_run:
                request, least = topics.deletion_request(client, list(found.values()))
                shown = [planned.plan(client, delete_topics.API, request, least=least)] if found else []
                out.planned_requests(shown, errors=errors)
                return 1 if errors else 0
            agree(list(found), f"Delete {len(found)} topics", force=force)
        except RefusedError as e:
            return failed(out, e, topic=pattern)
        outcome = topics.delete(client, list(found.values())) if found else {}
        for name, error in outcome.items():
            if error is not None:
                out.line(failure_text(error))
                errors.append(error_item(error, topic=name))
        status = {name: "marked" for name, error in outcome.items() if error is None}
        if errors and status:
            out.note(f"marked for deletion all the same: {','.join(sorted(status))}")
        if wait_s is not None:
            left = _wait_until_gone(client, [found[name] for name in status], wait_s)
            status |= {name: "deleted" for name in status if name not in left}
            for name in left:
                text = f"Topic {name} is still there: some broker tells of it"
                out.note(text)
                errors.append({"topic": name, "error": "still_there", "message": text})
        found_id = client.cluster_id
    if not out.is_text:
        items = [{"topic": name, "status": s} for name, s in status.items()]
        out.show(Answer((), items, cluster_id=found_id, errors=errors))
    return 1 if errors else 0


def _matching(client: "ClusterClient", pattern: str, *, if_exists: bool) -> dict[str, Topic]:
    """Read the topics to change. Raises RefusedError: there is none, or the one of that name may be there unseen."""
    found = read_meant(client, pattern)
    if not found and not if_exists:
        raise _missing(client, pattern, read_topics(client))
    return found


def _wait_until_gone(client: "ClusterClient", wanted: Sequence[Topic], wait_s: float) -> list[str]:
    deadline = time.monotonic() + wait_s
    while True:
        client.begin_anew()
        left = topics.still_there(client, wanted)
        remaining_s = deadline - time.monotonic()
        if not left or remaining_s <= 0:
            return left
        time.sleep(min(POLL_S, remaining_s))
