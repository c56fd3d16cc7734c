"""The main job as a story: every step says what it did, what was checked and how long it took.

A check that fails ends the story with exit 1 and says which. Nothing outlives it: the cluster lives in a temporary
directory and is ended whatever happens.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS = 100_000
PARTITIONS = 6
TOPIC = "orders"
ASSIGNMENT = "1:2:3,2:3:1,3:1:2,1:3:2,2:1:3,3:2:1"
PREFERRED = {partition: int(replicas[0]) for partition, replicas in enumerate(ASSIGNMENT.split(","))}
# Brokers die when the story says so, not when the machine lets one stand still for some seconds.
BROKERS = (
    "min.insync.replicas=2",
    "auto.leader.rebalance.enable=false",
    "zookeeper.session.timeout.ms=18000",
    "replica.lag.time.max.ms=60000",
)


class CheckFailedError(Exception):
    """Something the story promised did not hold."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailedError(what)
    print(f"      ok: {what}", flush=True)


@contextmanager
def step(number: int, title: str) -> Iterator[None]:
    print(f"\n{number:2}. {title}", flush=True)
    started = time.monotonic()
    yield
    print(f"      {time.monotonic() - started:.1f} s", flush=True)


def kt(*arguments: str, codes: tuple[int, ...] = (0,), shown: bool = True) -> str:
    """Run kt as a user would; its output. Another exit code than those expected fails the story."""
    if shown:
        print(f"      $ kt {' '.join(arguments)}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "kafkatool", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode not in codes:
        raise CheckFailedError(f"kt {arguments[0]} exited {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def eventually(what: Callable[[], bool], title: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while True:
        over = time.monotonic() > deadline  # the last look begins after it
        if what():
            break
        if over:
            raise CheckFailedError(f"{title}, within {seconds:.0f} s")
        time.sleep(0.1)
    check(True, title)


class Load:
    """100,000 numbered records with acks=all from confluent-kafka; remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}  # number -> (partition, offset)
        self.failed: list[str] = []
        # The client's own log would only repeat that the killed broker refuses connections.
        quiet = {"log_level": 0}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 240_000, **quiet}
        )
        self._thread = threading.Thread(target=self._run)

    @staticmethod
    def value(number: int) -> bytes:
        return b"%08d:" % number + bytes(str(number * 7919) * 8, "ascii")

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.failed.append(str(error))
            else:
                self.acknowledged[int(message.key())] = (message.partition(), message.offset())

        for number in range(RECORDS):
            while True:
                try:
                    self._producer.produce(TOPIC, self.value(number), str(number), on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
            if number % 2000 == 0:
                time.sleep(0.05)  # lasts long enough for the leader to be killed in the middle
        self._producer.flush(300)

    def wait(self) -> None:
        self._thread.join()


def describe(zookeeper: str, topic: str) -> list[dict[str, Any]]:
    document = json.loads(
        kt("topics", "describe", "--zookeeper", zookeeper, "--topic", topic, "--output", "json", shown=False)
    )
    items: list[dict[str, Any]] = document["items"]
    return items


def in_sync(zookeeper: str, topic: str) -> bool:
    return all(sorted(p["isr"]) == sorted(p["replicas"]) for p in describe(zookeeper, topic))


def leaders(zookeeper: str) -> dict[int, int | None]:
    return {p["partition"]: p["leader"] for p in describe(zookeeper, TOPIC)}


def verified(zookeeper: str) -> bool:
    """Have kt compare the replicas; where one of them stood still, so that it is not sure, it is to be asked again."""
    words = ("replica-verify", "--zookeeper", zookeeper, "--topic-white-list", TOPIC, "--once")
    found = {item["status"] for item in json.loads(kt(*words, "--output", "json", codes=(0, 1)))["items"]}
    if "different" in found:
        raise CheckFailedError("replicas differ")
    return found == {"equal"}


def read_back(bootstrap: str, load: Load) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    try:
        ends = {}
        for partition in range(PARTITIONS):
            ends[partition] = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=120)[1]
        consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
        seen: dict[int, bytes] = {}
        reached = dict.fromkeys(range(PARTITIONS), 0)
        deadline = time.monotonic() + 180
        while any(reached[p] < ends[p] for p in ends) and time.monotonic() < deadline:
            for message in consumer.consume(5000, 1.0):
                if message.error():
                    raise KafkaException(message.error())
                reached[message.partition()] = message.offset() + 1
                seen[int(message.key())] = message.value()
    finally:
        consumer.close()
    lost = [n for n in load.acknowledged if n not in seen]
    altered = [n for n, value in seen.items() if value != load.value(n)]
    check(len(load.acknowledged) == RECORDS, f"all {RECORDS:,} records were acknowledged ({len(load.failed)} refused)")
    check(not lost, f"none of the acknowledged records is lost ({len(seen):,} read)")
    check(not altered, "none is altered")


def play(directory: Path) -> None:
    cluster = ["--dir", str(directory)]
    with step(1, "A cluster of ZooKeeper and four brokers starts"):
        kt("cluster", "up", "--brokers", "4", *cluster, *(word for option in BROKERS for word in ("-o", option)))
        status = json.loads(kt("cluster", "status", *cluster, "--output", "json"))
        zookeeper, bootstrap = status["zookeeper"], status["bootstrap"]
        check(len([b for b in status["brokers"] if b["pid"]]) == 4, "four broker processes run")
        check(status["controller"] in (1, 2, 3, 4), f"broker {status['controller']} is the controller")

    with step(2, "A topic is made on brokers 1, 2 and 3"):
        made = kt("topics", "create", "--zookeeper", zookeeper, "--topic", TOPIC, "--replica-assignment", ASSIGNMENT)
        check(made == f'Created topic "{TOPIC}".\n', made.strip())
        eventually(lambda: len(describe(zookeeper, TOPIC)) == PARTITIONS, f"it has {PARTITIONS} partitions")
        eventually(lambda: in_sync(zookeeper, TOPIC), "all replicas are in sync")

    load = Load(bootstrap)
    with step(3, f"{RECORDS:,} records with acks=all; the leader of {TOPIC}-0 is killed -9 meanwhile"):
        load.start()
        while len(load.acknowledged) < RECORDS // 10:
            time.sleep(0.01)
        victim = leaders(zookeeper)[0]
        kt("cluster", "kill", str(victim), *cluster)
        at = len(load.acknowledged)
        eventually(
            lambda: all(p["leader"] not in (None, victim) for p in describe(zookeeper, TOPIC)),
            f"other brokers lead what broker {victim} led (killed after {at:,} acknowledgements)",
        )
        load.wait()
        check(len(load.acknowledged) == RECORDS, f"the producer got {len(load.acknowledged):,} acknowledgements")

    with step(4, f"Broker {victim} comes back"):
        kt("cluster", "start", str(victim), *cluster)
        eventually(lambda: in_sync(zookeeper, TOPIC), "all replicas are in sync again")
        check(
            all(p["leader"] != victim for p in describe(zookeeper, TOPIC)),
            "it follows: a returning broker does not take leadership back by itself",
        )

    with step(5, "The preferred leaders are brought back"):
        election = directory / "election.json"
        election.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": p} for p in PREFERRED]}))
        kt("elect", "--zookeeper", zookeeper, "--path-to-json-file", str(election))
        led = leaders(zookeeper)
        check(led == PREFERRED, f"leaders are the preferred ones again: {led}")

    with step(6, "The topic moves to brokers 2, 3 and 4: generate, execute, verify"):
        reassign(zookeeper, directory, "2,3,4")

    with step(7, "It moves back to 1, 2 and 3; the controller is killed -9 in the middle"):
        controller = broker_status(cluster)["controller"]
        pids = {b["id"]: b["pid"] for b in broker_status(cluster)["brokers"]}

        def kill_controller() -> None:
            kt("cluster", "kill", str(controller), *cluster)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[1], signal.SIGCONT)
            eventually(
                lambda: broker_status(cluster)["controller"] not in (None, controller),
                f"another broker rules after controller {controller} is gone",
            )
            kt("cluster", "start", str(controller), *cluster)

        # Broker 1 is to copy; frozen, it cannot be done before the controller dies.
        reassign(zookeeper, directory, "1,2,3", kill_controller, frozen=pids[1])

    with step(8, "Every acknowledged record is read back"):
        read_back(bootstrap, load)

    with step(9, "Replicas are compared byte for byte on their brokers"):
        eventually(lambda: in_sync(zookeeper, TOPIC), "all replicas are in sync")
        eventually(lambda: verified(zookeeper), "all replicas hold the same data")

    with step(10, "The state-change logs of all brokers are merged on Spark"):
        logs = [Path(b["state_change_log"]) for b in status["brokers"]]
        merged = directory / "merged.log"
        before = lines_in(logs)
        counts = merge(logs, merged)
        after, written = lines_in(logs), lines_in([merged])
        check(before <= counts["lines"] <= after, f"{counts['lines']:,} lines read, all there were at the start")
        check(counts["lines"] == counts["lines written"] == written, f"lines in = lines out = {written:,}")
        check(counts["dated lines of unknown form"] == 0, "every line is of a known form")
        stamps = re.findall(rb"^\[([\d :,-]+)\]", merged.read_bytes(), re.MULTILINE)
        check(stamps == sorted(stamps), "in time order")

    with step(11, "The cluster ends"):
        kt("cluster", "down", *cluster)
        status = json.loads(kt("cluster", "status", *cluster, "--output", "json"))
        check(all(b["pid"] is None for b in status["brokers"]), "no broker process is left")


def lines_in(files: list[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def merge(logs: list[Path], merged: Path) -> dict[str, int]:
    """kt logs merge; the counts it ends with, by name."""
    arguments = ("logs", "merge", "--logs", ",".join(map(str, logs)), "--out", str(merged))
    print(f"      $ kt logs merge --logs {','.join(f'…/broker-{i + 1}/…' for i in range(len(logs)))} --out {merged}")
    done = subprocess.run(
        [sys.executable, "-m", "kafkatool", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    check(done.returncode == 0, "kt logs merge exits 0")
    counts = re.findall(r"^(\S.*?) {2,}(\d+)$", done.stderr, re.MULTILINE)
    return {name: int(count) for name, count in counts}


def broker_status(cluster: list[str]) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(kt("cluster", "status", *cluster, "--output", "json", shown=False))
    return status


def reassign(
    zookeeper: str,
    directory: Path,
    brokers: str,
    meanwhile: Callable[[], None] | None = None,
    *,
    frozen: int | None = None,
) -> None:
    """Generate a plan, execute it while process ``frozen`` stands still, do ``meanwhile``, verify until done."""
    topics, plan_file = directory / "topics-to-move.json", directory / f"plan-{brokers.replace(',', '-')}.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}]}))
    generated = kt(
        *("reassign", "--zookeeper", zookeeper, "--generate"),
        *("--topics-to-move-json-file", str(topics), "--broker-list", brokers),
    )
    plan_file.write_text(generated.splitlines()[-1])
    wanted = {e["partition"]: e["replicas"] for e in json.loads(plan_file.read_text())["partitions"]}
    plan = ("--reassignment-json-file", str(plan_file))
    if frozen is not None:
        os.kill(frozen, signal.SIGSTOP)
    kt("reassign", "--zookeeper", zookeeper, "--execute", *plan)
    if meanwhile is not None:
        status = kt("reassign", "--zookeeper", zookeeper, "--verify", *plan, codes=(0, 1), shown=False)
        check("is still in progress" in status, f"{status.count('in progress')} partitions are being moved")
        meanwhile()
    eventually(
        lambda: (
            kt("reassign", "--zookeeper", zookeeper, "--verify", *plan, codes=(0, 1), shown=False).count("successfully")
            == PARTITIONS
        ),
        f"kt reassign --verify: {PARTITIONS} partitions completed successfully",
    )
    after = describe(zookeeper, TOPIC)
    check(all(p["replicas"] == wanted[p["partition"]] for p in after), "replicas are the plan's")
    check(all(p["leader"] in p["replicas"] for p in after), "leaders are among them")


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kafkatool-demo-") as name:
        directory = Path(name)
        try:
            play(directory)
        except (CheckFailedError, subprocess.TimeoutExpired, KafkaException) as e:
            print(f"\nFAILED: {e}", file=sys.stderr)
            return 1
        finally:
            subprocess.run(
                [sys.executable, "-m", "kafkatool", "cluster", "down", "--dir", name],
                capture_output=True,
                check=False,
                env={**os.environ},
            )
    print(f"\nAll of it worked. {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
