"""The steps that kt and Kafka's tools both do, in the order they are played. Each returns the facts it left behind.

A row's topics are its own, so that rows neither help nor hinder each other; what only kt has (``--cancel``, ``--list``)
is played by kt, and by Kafka's tools as the steps that lead to the same end.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Producer

from kafkatool.core.model.assignment import assign_replicas
from kafkatool.core.model.values import BrokerInfo
from kafkatool.core.zookeeper.znodes import ReassignmentZnode
from tests.compat.tool_stage import BROKERS, CONFIG_COMMAND, Facts, KafkaTools, Kt, Said, Stage

Play = Callable[[Stage], Facts]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. ``topics``: those that Kafka's TopicCommand is to show the same of, at the phase's end."""

    title: str
    play: Play
    topics: Sequence[str] = ()
    short: bool = True
    kafka_only: bool = False
    """kt has no such command: only Kafka's tools are compared."""


# --- topics ------------------------------------------------------------------------------------------------------


def create_assigned(stage: Stage) -> Facts:
    before = stage.changes()
    stage.make("assigned", "1:2,2:3,3:1", "retention.ms=60000", "min.insync.replicas=2")
    return {**stage.znodes("assigned"), "announced": stage.announced(before)}


def create_spread(stage: Stage) -> Facts:
    """Start and shift are random: the assignment must be one that Kafka's rule gives."""
    flags = ("--partitions", "7", "--replication-factor", "2")
    said = stage.topics("create", "--topic", stage.topic("spread"), *flags)
    stage.settle("spread")
    assignment = stage.assignment("spread")
    return {
        "exit": said.code,
        "by Kafka's rule": is_kafkas(assignment, 7, 2, BROKERS),
        "overrides": stage.znodes("spread")["znode of its overrides"],
    }


def create_again(stage: Stage) -> Facts:
    topic = stage.make("again", "1:2")
    before = stage.znodes("again")
    flags = ("--topic", topic, "--partitions", "3", "--replication-factor", "3")
    refused = stage.topics("create", *flags)
    ignored = stage.topics("create", *flags, "--if-not-exists")
    return {
        "refused": refused.code == 1 and "already exists." in refused.all,
        "--if-not-exists": ignored.code,
        "unchanged": stage.znodes("again") == before,
    }


def create_refused(stage: Stage) -> Facts:
    wrong = (
        ("x/y", "--partitions", "1", "--replication-factor", "1"),
        ("many", "--partitions", "1", "--replication-factor", "9"),
        ("none", "--partitions", "0", "--replication-factor", "1"),
        ("odd", "--partitions", "1", "--replication-factor", "1", "--config", "retention.ms=soon"),
        ("twice", "--replica-assignment", "1:1"),
    )
    refused = {name: stage.topics("create", "--topic", stage.topic(name), *flags).code for name, *flags in wrong}
    topics = stage.view().topics
    return {"exit": refused, "made": [name for name, *_ in wrong if stage.topic(name) in topics]}


def add_partitions(stage: Stage) -> Facts:
    """Add partitions: by rule the new ones follow from partition 0; by hand the old groups are skipped."""
    by_rule, by_hand = stage.make("grown", "2:3,3:1"), stage.make("placed", "1,2")
    codes = [
        stage.topics("alter", "--topic", by_rule, "--partitions", "5").code,
        stage.topics("alter", "--topic", by_hand, "--partitions", "4", "--replica-assignment", "1,2,3,3").code,
        stage.topics("alter", "--topic", by_hand, "--partitions", "2").code,
    ]
    stage.settle("grown", "placed")
    return {"exit": codes, "by rule": stage.znodes("grown"), "by hand": stage.znodes("placed")}


def alter_overrides(stage: Stage) -> Facts:
    topic = stage.make("tuned", "3:1", "retention.ms=60000", "segment.bytes=1048576")
    before = stage.changes()
    flags = ("--config", "max.message.bytes=2000", "--delete-config", "retention.ms")
    codes = [stage.topics("alter", "--topic", topic, *flags).code]
    announced = stage.announced(before)
    codes.append(stage.topics("alter", "--topic", topic, "--config", "no.such=1").code)
    return {"exit": codes, "announced": announced, **stage.znodes("tuned")}


def list_topics(stage: Stage) -> Facts:
    lines = stage.topics("list").stdout.splitlines()
    return {"names": sorted(line.removeprefix(stage.prefix) for line in lines if line.startswith(stage.prefix))}


def describe(stage: Stage) -> Facts:
    """Show what a replica on a broker that does not exist keeps under-replicated."""
    topic = stage.topic("under")
    stage.topics("create", "--topic", topic, "--replica-assignment", "1:9,2:3")
    stage.settle("under")
    wanted = ("describe", "--topic", f"{stage.prefix}.*")
    every = stage.described(stage.topics(*wanted).stdout)
    random = every.pop("spread", {"header": None})  # not there in the tests' short form
    return {
        "of a random topic": random["header"],
        "all": every,
        "under-replicated": stage.described(stage.topics(*wanted, "--under-replicated-partitions").stdout),
        "unavailable": stage.described(stage.topics(*wanted, "--unavailable-partitions").stdout),
        "overrides": stage.described(stage.topics(*wanted, "--topics-with-overrides").stdout),
    }


def delete_topics(stage: Stage) -> Facts:
    topic = stage.make("gone", "1:2,2:3")
    codes = [stage.topics("delete", "--topic", topic).code]
    stage.until(lambda v: topic not in v.topics and topic not in v.marked_for_deletion, f"{topic} deleted")
    codes.append(stage.topics("delete", "--topic", topic, "--if-exists").code)
    codes.append(stage.topics("delete", "--topic", topic).code)
    return {"exit": codes, **stage.znodes("gone"), "listed": topic in stage.topics("list").stdout.split()}


# --- reassign ----------------------------------------------------------------------------------------------------


def generate(stage: Stage) -> Facts:
    topic = stage.make("planned", "1,1,1,1")
    topics = stage.file("topics.json", {"topics": [{"topic": topic}], "version": 1})
    said = stage.reassign("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    current, proposed = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
    return {
        "exit": said.code,
        "current": replicas(current),
        "by Kafka's rule": is_kafkas(replicas(proposed), 4, 1, (2, 3)),
        "nothing is moved": stage.assignment("planned"),
    }


def execute(stage: Stage) -> Facts:
    """Move the documents' own: four partitions, two of which the plan changes nothing of."""
    stage.make("moved", "1,2,3,1")
    plan = stage.plan("moved", {0: [3], 1: [2], 2: [3], 3: [2]})
    pending = verify(stage, plan)
    said = stage.reassign("--execute", "--reassignment-json-file", plan)
    stage.settle("moved")
    return {
        "exit": said.code,
        "verified before": pending,
        "verified after": verify(stage, plan),
        **stage.znodes("moved"),
    }


def resize(stage: Stage) -> Facts:
    """More replicas, fewer, another order, and back by what the tool printed or saved."""
    stage.make("resized", "1:2,1:2,1:2")
    plan = stage.plan("resized", {0: [1, 2, 3], 1: [3], 2: [2, 1]})
    said = stage.reassign("--execute", "--reassignment-json-file", plan)
    stage.settle("resized")
    there = stage.assignment("resized")
    printed = next(line for line in said.stdout.splitlines() if line.startswith("{"))
    back = plan.replace(".json", ".rollback.json") if isinstance(stage.actor, Kt) else stage.file("back.json", printed)
    stage.reassign("--execute", "--reassignment-json-file", back)
    stage.settle("resized")
    return {"there": there, "back": stage.assignment("resized"), "verified": verify(stage, back)}


def throttled(stage: Stage) -> Facts:
    """Look at the limits when the move is done, before and after verify has taken them away."""
    stage.make("limited", "1:2,2:1", "retention.ms=60000")
    plan = stage.plan("limited", {0: [3, 2], 1: [2, 3]})
    before = stage.changes()
    stage.reassign("--execute", "--reassignment-json-file", plan, "--throttle", "100000000")
    stage.settle("limited")
    set_to = {"topic": stage.znodes("limited"), "brokers": stage.broker_configs(), "told": stage.announced(before)}
    before = stage.changes()
    found = verify(stage, plan)
    after = {"topic": stage.znodes("limited"), "brokers": stage.broker_configs(), "told": stage.announced(before)}
    return {"limits": set_to, "verified": found, "without": after}


def execute_refused(stage: Stage) -> Facts:
    topic = stage.make("kept", "1:2")
    entry = {"topic": topic, "partition": 0, "replicas": [2, 3]}
    wrong = {
        "no such partition": [{**entry, "partition": 9}],
        "twice": [entry, entry],
        "a broker twice": [{**entry, "replicas": [2, 2]}],
        "empty": [],
    }
    said = {}
    for number, (name, partitions) in enumerate(wrong.items()):
        file = stage.file(f"wrong-{number}.json", {"version": 1, "partitions": partitions})
        said[name] = failed(stage.reassign("--execute", "--reassignment-json-file", file))
    running = stage.zk.get(ReassignmentZnode.PATH) is not None
    return {"refused": said, "started": running, **stage.znodes("kept")}


def cancel(stage: Stage) -> Facts:
    """kt's own ``--cancel --rollback``; Kafka's tool has none with ZooKeeper, there the way back is a plan."""
    stage.make("undone", "1:2,2:1")
    plan = stage.plan("undone", {0: [3, 2], 1: [2, 3]})
    stage.reassign("--execute", "--reassignment-json-file", plan)
    stage.settle("undone")
    if isinstance(stage.actor, Kt):
        assert stage.reassign("--list").stdout == "No partition reassignments found.\n"
        assert stage.reassign("--cancel", "--rollback", "--reassignment-json-file", plan).code == 0
    else:
        back = stage.plan("undone-back", {0: [1, 2], 1: [2, 1]}, topic="undone")
        stage.reassign("--execute", "--reassignment-json-file", back)
    stage.settle("undone")
    return stage.znodes("undone")


def verify(stage: Stage, plan: str) -> Facts:
    """Kafka 2.8 words it otherwise than the versions before; what each line says is the same."""
    said = stage.reassign("--verify", "--reassignment-json-file", plan)
    done = re.findall(r"completed successfully|is complete\.", said.stdout)
    others = re.findall(r"\d\]? failed$|rather than", said.stdout, re.MULTILINE)
    return {"completed": len(done), "not as planned": len(others)}


# --- elect, replica-verify ---------------------------------------------------------------------------------------


def elect_chosen(stage: Stage) -> Facts:
    """Elect by file: two of three, and one that does not exist."""
    topic = stage.make("led", "1:2:3,2:3:1,3:1:2")
    turn(stage, "led", {0: (2, 1, 3), 1: (3, 2, 1), 2: (1, 3, 2)})
    rows = [{"topic": topic, "partition": p} for p in (0, 1, 9)]
    before = stage.leaders("led")
    said = stage.elect("--path-to-json-file", stage.file("election.json", {"partitions": rows}))
    stage.until(lambda v: v.election is None and stage.leaders("led")[:2] == [2, 3], "both elected")
    stage.settle("led")
    skipped = re.findall(r"\w+-\d+|\[\S+,\d+\]", "".join(re.findall(r"Skipping .*", said.all)))
    return {"before": before, "after": stage.leaders("led"), "skipped": len(skipped)}


def elect_all(stage: Stage) -> Facts:
    stage.make("all", "1:2,2:3,3:1")
    turn(stage, "all", {0: (2, 1), 1: (3, 2), 2: (1, 3)})
    before = stage.leaders("all")
    stage.elect()
    stage.until(lambda v: v.election is None and stage.leaders("all") == [2, 3, 1], "all elected")
    return {"before": before, "after": stage.leaders("all"), "the others": stage.leaders("led")}


def elect_refused(stage: Stage) -> Facts:
    """Give a partition twice, and a document without partitions; no election is started."""
    topic = stage.make("still", "1:2")
    row = {"topic": topic, "partition": 0}
    files = {"twice": {"partitions": [row, row]}, "no partitions": {"version": 1}}
    said = {}
    for number, (name, content) in enumerate(files.items()):
        said[name] = failed(stage.elect("--path-to-json-file", stage.file(f"elect-{number}.json", content)))
    return {"refused": said, "leaders": stage.leaders("still")}


def replicas_verified(stage: Stage) -> Facts:
    topic = stage.make("data", "1:2:3,2:3:1")
    producer = Producer({"bootstrap.servers": stage.bootstrap, "acks": "all", **stage.client})
    for number in range(200):
        producer.produce(topic, b"value-%d" % number, partition=number % 2)
    assert producer.flush(60) == 0
    return {"equal": stage.actor.replicas_equal(stage.bootstrap, topic)}


def turn(stage: Stage, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
    """Another replica is preferred from now on; the leaders stay: what a broker's return leaves behind."""
    plan = {"version": 1, "partitions": [
        {"topic": stage.topic(name), "partition": p, "replicas": r} for p, r in assignment.items()
    ]}  # fmt: skip
    stage.zk.create(ReassignmentZnode.PATH, json.dumps(plan).encode())
    stage.until(lambda v: v.reassignment is None and v.topics[stage.topic(name)].assignment == assignment, "turned")
    stage.settle(name)


def change_configs(stage: Stage) -> Facts:
    """ConfigCommand on a topic, and a client's quota; set, shown, and taken back."""
    assert isinstance(stage.actor, KafkaTools)
    topic, client = stage.make("configured", "2:3"), stage.topic("client")
    before = stage.changes()
    entities = (("topics", topic, "max.message.bytes=2000"), ("clients", client, "producer_byte_rate=1048576"))
    facts: Facts = {}
    for kind, name, config in entities:
        where = ("--zookeeper", stage.connect, "--entity-type", kind, "--entity-name", name)
        codes = [stage.actor(CONFIG_COMMAND, *where, "--alter", "--add-config", config).code]
        shown = config in stage.actor(CONFIG_COMMAND, *where, "--describe").stdout
        stored = stage.json(f"/config/{kind}/{name}")
        codes.append(stage.actor(CONFIG_COMMAND, *where, "--alter", "--delete-config", config.split("=")[0]).code)
        facts[kind] = {"exit": codes, "shown": shown, "stored": stored, "after": stage.json(f"/config/{kind}/{name}")}
    return {**facts, "announced": stage.announced(before)}


# --- what is compared ----------------------------------------------------------------------------------------------


def failed(said: Said) -> bool:
    """Tell if it failed by its exit code or, in versions that end with 0, by its words."""
    return said.code != 0 or bool(re.search(r"failed|[Ee]rror|Exception|empty", said.all))


def replicas(plan: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {row["partition"]: row["replicas"] for row in sorted(plan["partitions"], key=str)}


def is_kafkas(assignment: object, partitions: int, factor: int, brokers: Sequence[int]) -> bool:
    """Tell whether some start and shift give that assignment (ASG-3 to ASG-5)."""
    assert isinstance(assignment, dict)
    infos = [BrokerInfo(b, ()) for b in brokers]
    wanted = {p: tuple(r) for p, r in assignment.items()}
    return any(
        assign_replicas(infos, partitions, factor, start_index=start, replica_shift=shift) == wanted
        for start in range(len(brokers))
        for shift in range(len(brokers))
    )


PHASES: Final[Sequence[Sequence[Row]]] = (
    (
        Row("`topics create --replica-assignment --config`", create_assigned, ("assigned",)),
        Row("`topics create --partitions --replication-factor`", create_spread, short=False),
        Row("`topics create` of one that exists; `--if-not-exists`", create_again, ("again",), short=False),
        Row("`topics create` that is refused", create_refused, short=False),
        Row("`topics alter --partitions`, `--replica-assignment`", add_partitions, ("grown", "placed")),
        Row("`topics alter --config --delete-config`", alter_overrides, ("tuned",)),
        Row("`topics list`", list_topics, short=False),
        Row("`topics describe`, and its filters", describe, ("under",)),
    ),
    (
        Row("`reassign --generate`", generate, short=False),
        Row("`reassign --execute`, `--verify`", execute, ("moved",)),
        Row("`reassign` to more and fewer replicas, and back", resize, ("resized",), short=False),
        Row("`reassign --execute --throttle`, and verify takes it away", throttled, ("limited",)),
        Row("`reassign --execute` that is refused", execute_refused, ("kept",), short=False),
        Row("`reassign --list`, `--cancel --rollback`", cancel, ("undone",), short=False),
        Row("`elect --path-to-json-file`", elect_chosen, ("led",)),
        Row("`elect` of all partitions", elect_all, ("all", "led"), short=False),
        Row("`elect` that is refused", elect_refused, ("still",), short=False),
        Row("ConfigCommand", change_configs, kafka_only=True, short=False),
        Row("`replica-verify`", replicas_verified, ("data",)),
        Row("`topics delete`, `--if-exists`", delete_topics),
    ),
)
