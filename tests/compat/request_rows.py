"""The steps that kt and Kafka's tools of 3.x and 4.x both do by request. Each row returns the facts it left behind.

Facts are read by librdkafka from every broker, and wait until they all tell the same: each learns in its own time.
Words are compared where they are the answer (descriptions, what runs), exit codes where Kafka's tools give any.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.compat.java_tools import Said
from tests.compat.real_kafka import RealKafka
from tests.compat.request_actors import Actor, described
from tests.waiting import awaited, eventually

WAIT_S: Final = 180
BROKERS: Final = (1, 2, 3)
_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")

Facts = dict[str, Any]
Replicas = dict[int, list[int]]
Told = dict[int, tuple[int, list[int], list[int]]]
"""Partition -> leader, replicas, and ISR in ascending order, as a broker tells of a topic."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster of brokers 1 to 3 and who acts on it; the actor's topics begin with ``prefix``."""

    kafka: RealKafka
    actor: Actor
    directory: Path
    prefix: str
    client: Mapping[str, str] = field(default_factory=dict)
    """What else librdkafka needs to get in."""

    # --- acting -------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> str:
        return self.prefix + name

    def make(self, name: str, assignment: str, *configs: str) -> str:
        """Have the actor create the topic; return its name when all replicas are in sync."""
        flags = [flag for config in configs for flag in ("--config", config)]
        ok(self.actor.topics("create", "--topic", self.topic(name), "--replica-assignment", assignment, *flags))
        groups = [[int(b) for b in group.split(":")] for group in assignment.split(",")]
        self.settle(name, dict(enumerate(groups)))
        return self.topic(name)

    def filled(self, name: str, assignment: str) -> str:
        """Create it with so much data that a throttled replica cannot follow."""
        topic = self.make(name, assignment)
        where = {"bootstrap.servers": self.kafka.bootstrap, **self.client}
        producer = Producer({**where, "acks": "all", "batch.num.messages": 1})
        for _ in range(40):
            producer.produce(topic, bytes(50_000), partition=0)
        assert producer.flush(WAIT_S) == 0
        return topic

    def file(self, name: str, content: object) -> str:
        """Write a JSON file for the actor's tool."""
        path = self.directory / f"{self.prefix}{name}"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def plan(self, name: str, assignment: Replicas, topic: str | None = None) -> str:
        """Write a plan file for one topic."""
        rows = [{"topic": self.topic(topic or name), "partition": p, "replicas": r} for p, r in assignment.items()]
        return self.file(f"{name}.json", {"version": 1, "partitions": rows})

    def execute(self, plan: str, *flags: str) -> Said:
        return self.actor.reassign("--execute", "--reassignment-json-file", plan, *flags)

    # --- reading ------------------------------------------------------------------------------------------------

    def told(self, name: str, brokers: Sequence[int] = BROKERS) -> list[Told | None]:
        """Return what each of those brokers tells of the topic; None where it knows none, nothing where it is silent."""
        return [self._told(broker, self.topic(name)) for broker in brokers]

    def _asking(self, broker: int) -> AdminClient:
        """Return a new client: it asks the broker it was given, and knows of none that it has left out while it was down."""
        where = {"bootstrap.servers": f"127.0.0.1:{self.kafka.ports[broker]}", "client.id": "facts"}
        return AdminClient({**where, **self.client})

    def _told(self, broker: int, topic: str) -> Told | None:
        try:
            found = self._asking(broker).list_topics(timeout=10).topics.get(topic)
        except KafkaException:
            return {}  # it is busy, or starts: neither there nor gone
        return (
            None if found is None else {p: (m.leader, m.replicas, sorted(m.isrs)) for p, m in found.partitions.items()}
        )

    def settle(self, name: str, wanted: Replicas) -> None:
        """Wait until every broker tells of these replicas, and that all are in sync under a leader."""

        def is_settled() -> bool:
            return all(
                told is not None
                and {p: replicas for p, (_, replicas, _) in told.items()} == wanted
                and all(leader in isr and isr == sorted(replicas) for leader, replicas, isr in told.values())
                for told in self.told(name)
            )

        eventually(is_settled, f"{self.topic(name)} as {wanted}, in sync", WAIT_S)

    def one_told(self, name: str) -> Told:
        """Return what all brokers tell alike of a topic whose replicas are in sync."""

        def alike() -> Told | None:
            first, *others = self.told(name)
            ready = first and all(leader in isr and isr == sorted(r) for leader, r, isr in first.values())
            return first if ready and all(other == first for other in others) else None

        return awaited(alike, f"{self.topic(name)} told alike", WAIT_S)

    def replicas(self, name: str) -> Replicas:
        return {p: replicas for p, (_, replicas, _) in sorted(self.one_told(name).items())}

    def leaders(self, name: str) -> list[int]:
        return [leader for _, (leader, _, _) in sorted(self.one_told(name).items())]

    def exists(self, name: str) -> bool:
        """Tell whether brokers know the topic, when they all agree."""

        def agreed() -> list[bool] | None:
            found = self.told(name)
            return [found[0] is not None] if all((t is None) == (found[0] is None) and t != {} for t in found) else None

        return awaited(agreed, f"{self.topic(name)} known to all or none", WAIT_S)[0]

    def throttles(self) -> dict[str, dict[str, str]]:
        """Return the replication throttles of brokers that have any."""
        found = {str(b): self._dynamic(b, ResourceType.BROKER, str(b)) for b in BROKERS}
        return {b: {k: c[k] for k in _RATES if k in c} for b, c in found.items() if any(k in c for k in _RATES)}

    def _dynamic(self, broker: int, kind: ResourceType, name: str) -> dict[str, str]:
        wanted = ConfigResource(kind, name)
        admin = self._asking(broker)  # kept until it has answered: with a client that is let go its questions end
        (future,) = admin.describe_configs([wanted], request_timeout=WAIT_S, broker=broker).values()
        own = {1: ResourceType.TOPIC, 2: ResourceType.BROKER}  # the sources DYNAMIC_TOPIC and DYNAMIC_BROKER
        return {c.name: c.value for c in future.result().values() if own.get(c.source) == kind}

    def until_overrides(self, name: str, wanted: Mapping[str, str]) -> None:
        """Wait until every broker tells that these are the topic's own configs: each learns of them in its own time."""

        def told() -> bool:
            return all(self._dynamic(b, ResourceType.TOPIC, self.topic(name)) == wanted for b in BROKERS)

        eventually(told, f"{self.topic(name)} with {wanted}", WAIT_S)

    def shown(self, *flags: str) -> list[str]:
        return described(self.actor.topics("describe", *flags).text, self.prefix)


def ok(said: Said) -> str:
    """Return what it said; it must have succeeded."""
    assert said.code == 0, said.text
    return said.text


def failed(said: Said) -> bool:
    """Tell if it failed by its exit code or, where that is 0, by its words."""
    return said.code != 0 or bool(re.search(r"failed|[Ee]rror|Exception", said.text))


def verified(stage: Stage, plan: str, *flags: str) -> Facts:
    """Return what verify finds: a plan's partitions complete, on the move, or elsewhere."""
    said = stage.actor.reassign("--verify", "--reassignment-json-file", plan, *flags)
    return {
        "complete": len(re.findall(r"Reassignment of partition \S+ (?:is complete|completed successfully)", said.text)),
        "on the move": len(re.findall(r"is still in progress", said.text)),
        "elsewhere": len(re.findall(r"There is no active reassignment|rather than| failed$", said.text, re.MULTILINE)),
    }


# --- topics ------------------------------------------------------------------------------------------------------


def create_assigned(stage: Stage) -> Facts:
    stage.make("assigned", "1:2,2:3,3:1", "retention.ms=60000", "min.insync.replicas=2")
    stage.until_overrides("assigned", {"retention.ms": "60000", "min.insync.replicas": "2"})
    return {"replicas": stage.replicas("assigned")}


def create_spread(stage: Stage) -> Facts:
    """The brokers choose, or kt with ZooKeeper: nobody can foretell which."""
    flags = ("--partitions", "7", "--replication-factor", "2")
    said = stage.actor.topics("create", "--topic", stage.topic("spread"), *flags)
    replicas = stage.replicas("spread").values()
    leads = [[r[0] for r in replicas].count(b) for b in BROKERS]
    return {
        "exit": said.code,
        "partitions": len(replicas),
        "distinct": all(len(set(r)) == 2 and set(r) <= set(BROKERS) for r in replicas),
        "even": max(leads) - min(leads) <= 1,
    }


def create_again(stage: Stage) -> Facts:
    topic = stage.make("again", "1:2")
    flags = ("--topic", topic, "--partitions", "3", "--replication-factor", "3")
    refused = stage.actor.topics("create", *flags)
    ignored = stage.actor.topics("create", *flags, "--if-not-exists")
    return {
        "refused": refused.code != 0 and "already exists" in refused.text,
        "--if-not-exists": ignored.code,
        "unchanged": stage.replicas("again"),
    }


def create_refused(stage: Stage) -> Facts:
    wrong = (
        ("x/y", "--partitions", "1", "--replication-factor", "1"),
        ("many", "--partitions", "1", "--replication-factor", "9"),
        ("none", "--partitions", "0", "--replication-factor", "1"),
        ("odd", "--partitions", "1", "--replication-factor", "1", "--config", "retention.ms=soon"),
        ("unknown", "--partitions", "1", "--replication-factor", "1", "--config", "no.such=1"),
        ("twice", "--replica-assignment", "1:1"),
    )
    refused = {name: failed(stage.actor.topics("create", "--topic", stage.topic(name), *f)) for name, *f in wrong}
    return {"refused": refused, "made": [name for name, *_ in wrong if stage.exists(name)]}


def add_partitions(stage: Stage) -> Facts:
    grown, placed = stage.make("grown", "2:3,3:1"), stage.make("placed", "1,2")
    alter = stage.actor.topics
    codes = [
        alter("alter", "--topic", grown, "--partitions", "5").code,
        alter("alter", "--topic", placed, "--partitions", "4", "--replica-assignment", "1,2,3,3").code,
    ]
    stage.settle("placed", {0: [1], 1: [2], 2: [3], 3: [3]})
    eventually(lambda: len(stage.replicas("grown")) == 5, "five partitions", WAIT_S)
    found = stage.replicas("grown")
    codes.append(alter("alter", "--topic", placed, "--partitions", "2").code)
    codes.append(alter("alter", "--topic", stage.topic("nowhere"), "--partitions", "2").code)
    codes.append(alter("alter", "--topic", stage.topic("nowhere"), "--partitions", "2", "--if-exists").code)
    return {
        "exit": codes,
        "kept": [found[0], found[1]],
        "new": [len(set(found[p])) for p in (2, 3, 4)],
        "placed": stage.replicas("placed"),
    }


def alter_configs(stage: Stage) -> Facts:
    topic = stage.make("tuned", "3:1", "retention.ms=60000", "segment.bytes=1048576")
    codes = [stage.actor.configure(topic, {"max.message.bytes": "2000"}, ["retention.ms"]).code]
    wanted = {"max.message.bytes": "2000", "segment.bytes": "1048576"}
    stage.until_overrides("tuned", wanted)
    refused = failed(stage.actor.configure(topic, {"no.such": "1"}))
    stage.until_overrides("tuned", wanted)
    return {"exit": codes, "unknown refused": refused}


def list_topics(stage: Stage) -> Facts:
    lines = stage.actor.topics("list").text.splitlines()
    return {"names": [line.removeprefix(stage.prefix) for line in lines if line.startswith(stage.prefix)]}


def describe_whole(stage: Stage) -> Facts:
    flags = ("--topic", f"{stage.prefix}(assigned|grown|tuned)")
    stage.one_told("grown")
    lines = [line for line in stage.shown(*flags) if "grown Partition: " not in line]  # which brokers chose
    nowhere = stage.actor.topics("describe", "--topic", stage.topic("nowhere"))
    return {
        "all": lines,
        "overrides": stage.shown(*flags, "--topics-with-overrides"),
        "nowhere": failed(nowhere) and "does not exist" in nowhere.text,
        "--if-exists": stage.actor.topics("describe", "--topic", stage.topic("nowhere"), "--if-exists").code,
    }


def describe_filtered(stage: Stage) -> Facts:
    """Broker 3 is down: what it led alone is unavailable, the rest under-replicated; one at, one under min.insync."""
    stage.make("alone", "3,1")
    stage.make("pair", "3:1,1:2", "min.insync.replicas=1")
    stage.make("two", "1:3,2:1", "min.insync.replicas=2")
    flags = ("--topic", f"{stage.prefix}(alone|pair|two)")
    filters = ("under-replicated", "unavailable", "at-min-isr", "under-min-isr")

    def shown() -> Facts | None:
        """Return what each filter shows, once both live brokers tell that 3 leads nothing and is in sync with nobody."""
        told = [t for name in ("alone", "pair", "two") for t in stage.told(name, (1, 2))]
        gone = [t and all(leader != 3 and (3 not in isr or isr == [3]) for leader, _, isr in t.values()) for t in told]
        return {name: stage.shown(*flags, f"--{name}-partitions") for name in filters} if all(gone) else None

    with stage.kafka.without_broker(3):
        found = awaited(shown, "brokers 1 and 2 to tell of 3's end", WAIT_S)
    stage.settle("alone", {0: [3], 1: [1]})
    stage.settle("pair", {0: [3, 1], 1: [1, 2]})
    stage.settle("two", {0: [1, 3], 1: [2, 1]})
    return found


def delete_topics(stage: Stage) -> Facts:
    topic = stage.make("gone", "1:2,2:3")
    codes = [stage.actor.topics("delete", "--topic", topic).code]
    eventually(lambda: not stage.exists("gone"), f"{topic} deleted", WAIT_S)
    codes.append(stage.actor.topics("delete", "--topic", topic, "--if-exists").code)
    codes.append(stage.actor.topics("delete", "--topic", topic).code)
    return {"exit": codes, "listed": topic in stage.actor.topics("list").text.split()}


# --- reassign ----------------------------------------------------------------------------------------------------


def generate(stage: Stage) -> Facts:
    topic = stage.make("planned", "1,1,1,1")
    topics = stage.file("topics.json", {"topics": [{"topic": topic}], "version": 1})
    said = stage.actor.reassign("--generate", "--topics-to-move-json-file", topics, "--broker-list", "2,3")
    current, proposed = [json.loads(line) for line in said.text.splitlines() if line.startswith("{")]
    targets = [row["replicas"] for row in proposed["partitions"]]
    return {
        "exit": said.code,
        "current": sorted((row["partition"], row["replicas"]) for row in current["partitions"]),
        "proposed": (len(targets), sorted(len(t) for t in targets), [targets.count([b]) for b in (2, 3)]),
        "nothing is moved": stage.replicas("planned"),
    }


def execute(stage: Stage) -> Facts:
    stage.make("moved", "1,2,3,1")
    plan = stage.plan("moved", {0: [3], 1: [2], 2: [3], 3: [2]})
    before = verified(stage, plan)
    said = stage.execute(plan)
    stage.settle("moved", {0: [3], 1: [2], 2: [3], 3: [2]})
    found = awaited(lambda: v if (v := verified(stage, plan))["complete"] == 4 else None, "verify to agree", WAIT_S)
    return {"exit": said.code, "before": before["complete"], "after": found, "replicas": stage.replicas("moved")}


def resize(stage: Stage) -> Facts:
    """More replicas, fewer, another order, and back by what the tool printed."""
    stage.make("resized", "1:2,1:2,1:2")
    there = {0: [1, 2, 3], 1: [3], 2: [2, 1]}
    said = stage.execute(stage.plan("resized", there))
    stage.settle("resized", there)
    printed = next(line for line in said.text.splitlines() if line.startswith("{"))
    stage.execute(stage.file("back.json", printed))
    stage.settle("resized", {p: [1, 2] for p in range(3)})
    return {"exit": said.code, "back": stage.replicas("resized")}


def execute_refused(stage: Stage) -> Facts:
    topic = stage.make("kept", "1:2")
    entry = {"topic": topic, "partition": 0, "replicas": [2, 3]}
    wrong = {
        "no such partition": [{**entry, "partition": 9}],
        "no such broker": [{**entry, "replicas": [2, 9]}],
        "twice": [entry, entry],
        "a broker twice": [{**entry, "replicas": [2, 2]}],
        "empty": [],
    }
    said = {}
    for number, (name, partitions) in enumerate(wrong.items()):
        file = stage.file(f"wrong-{number}.json", {"version": 1, "partitions": partitions})
        said[name] = failed(stage.execute(file))
    return {"refused": said, "kept": stage.replicas("kept")}


def throttled(stage: Stage) -> Facts:
    """A move that stands still under its limit: listed, verified, not replaced unasked, let go, and the limit taken off."""
    topic = stage.filled("limited", "1:2")
    plan = stage.plan("limited", {0: [3, 2]})
    started = stage.execute(plan, "--throttle", "1")
    limited = {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    stage.until_overrides("limited", limited)
    listed = [line for line in stage.actor.reassign("--list").text.splitlines() if line.startswith(topic)]
    facts: Facts = {
        "exit": started.code,
        "throttles": awaited(
            lambda: t if len(t := stage.throttles()) == 3 else None, "limits of three brokers", WAIT_S
        ),
        "listed": [line.replace(stage.prefix, "") for line in listed],
        "verified": verified(stage, plan),
        "again": failed(stage.execute(plan, "--throttle", "2")),
    }
    stage.until_overrides("limited", limited)
    facts["--additional"] = stage.execute(plan, "--throttle", "100000000", "--additional").code
    stage.settle("limited", {0: [3, 2]})
    done = awaited(lambda: v if (v := verified(stage, plan))["complete"] else None, "verify to agree", WAIT_S)
    stage.until_overrides("limited", {})
    eventually(lambda: not stage.throttles(), "the limits of brokers to be gone", WAIT_S)
    return {**facts, "done": done}


def cancelled(stage: Stage) -> Facts:
    """One that adds and removes, cancelled on its way: who holds it then, and in which order, the brokers decide."""
    topic = stage.filled("undone", "1:2,2:1")
    plan = stage.plan("undone", {0: [3, 2]})
    stage.execute(plan, "--throttle", "1")
    eventually(lambda: topic in stage.actor.reassign("--list").text, "the move to be listed", WAIT_S)
    said = stage.actor.reassign("--cancel", "--reassignment-json-file", plan)
    eventually(lambda: set(stage.replicas("undone")[0]) == {1, 2}, "the way back", WAIT_S)
    stage.until_overrides("undone", {})
    eventually(lambda: not stage.throttles(), "the limits of brokers to be gone", WAIT_S)
    again = stage.actor.reassign("--cancel", "--reassignment-json-file", plan)
    return {
        "replicas": stage.replicas("undone"),
        "said": "Successfully cancelled partition reassignment" in said.text,
        "again": "None of the specified partition moves are active" in again.text,
        "leaders": stage.leaders("undone"),
    }


# --- elect -------------------------------------------------------------------------------------------------------


def turn(stage: Stage, name: str, wanted: Replicas) -> None:
    """Another replica is preferred from now on; the leaders stay: what a broker's return leaves behind."""
    ok(stage.execute(stage.plan(f"{name}-turn", wanted, topic=name)))
    stage.settle(name, wanted)


def elect_chosen(stage: Stage) -> Facts:
    """Elect by file: two of three; the third stays. Then a needless one, and one that does not exist."""
    topic = stage.make("led", "1:2:3,2:3:1,3:1:2")
    turn(stage, "led", {0: [2, 1, 3], 1: [3, 2, 1], 2: [1, 3, 2]})
    rows = [{"topic": topic, "partition": p} for p in (0, 1)]
    before = stage.leaders("led")
    said = stage.actor.elect("--path-to-json-file", stage.file("election.json", {"partitions": rows}))
    eventually(lambda: stage.leaders("led")[:2] == [2, 3], "both elected", WAIT_S)
    facts: Facts = {"exit": said.code, "before": before, "after": stage.leaders("led")}
    if stage.actor.by_request:
        needless = stage.actor.elect("--topic", topic, "--partition", "0")
        facts["needless"] = (needless.code, "Valid replica already elected" in needless.text)
    return {**facts, "unknown": failed(stage.actor.elect("--topic", topic, "--partition", "9"))}


def elect_all(stage: Stage) -> Facts:
    stage.make("all", "1:2,2:3,3:1")
    turn(stage, "all", {0: [2, 1], 1: [3, 2], 2: [1, 3]})
    before = stage.leaders("all")
    said = stage.actor.elect(*(("--all-topic-partitions",) if stage.actor.by_request else ()))
    eventually(lambda: stage.leaders("all") == [2, 3, 1], "all elected", WAIT_S)
    return {"exit": said.code, "before": before}


def elect_refused(stage: Stage) -> Facts:
    """Give a partition twice, a document without partitions, and none that can be read; no election is started."""
    topic = stage.make("still", "1:2,2:1")
    turn(stage, "still", {0: [2, 1], 1: [1, 2]})
    row = {"topic": topic, "partition": 0}
    files: dict[str, object] = {"twice": {"partitions": [row, row]}, "no partitions": {"version": 1}, "no JSON": "{"}
    said = {}
    for number, (name, content) in enumerate(files.items()):
        said[name] = failed(stage.actor.elect("--path-to-json-file", stage.file(f"elect-{number}.json", content)))
    return {"refused": said, "leaders": stage.leaders("still")}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. ``by_request``: kt has it that way only."""

    title: str
    play: Callable[[Stage], Facts]
    short: bool = True
    by_request: bool = False


ROWS: Final[Sequence[Row]] = (
    Row("`topics create --replica-assignment --config`", create_assigned),
    Row("`topics create --partitions --replication-factor`", create_spread, short=False),
    Row("`topics create` of one that exists; `--if-not-exists`", create_again, short=False),
    Row("`topics create` that is refused", create_refused),
    Row("`topics alter --partitions`, `--replica-assignment`, refused", add_partitions),
    Row("configs of a topic set, deleted, refused", alter_configs),
    Row("`topics list`", list_topics, short=False),
    Row("`topics describe`, line by line", describe_whole),
    Row("`topics describe` with a broker down: four filters, line by line", describe_filtered, short=False),
    Row("`reassign --generate`", generate, short=False),
    Row("`reassign --execute`, `--verify`", execute),
    Row("`reassign` to more and fewer replicas, and back", resize, short=False),
    Row("`reassign --execute` that is refused", execute_refused),
    Row("`reassign --throttle`, `--list`, `--verify`, `--additional`", throttled, by_request=True),
    Row("`reassign --cancel`", cancelled, by_request=True),
    Row("`elect` by file and by name", elect_chosen),
    Row("`elect` of all partitions", elect_all, short=False),
    Row("`elect` that is refused", elect_refused, short=False),
    Row("`topics delete`, `--if-exists`", delete_topics),
)
