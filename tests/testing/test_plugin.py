"""The plugin as a test suite uses it: each test writes one, runs it in a pytest of its own, and looks at what it left."""

import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.integration.test_nothing_left_behind import processes_of
from tests.waiting import eventually

pytest_plugins = ["pytester"]

PRODUCES = """
from confluent_kafka import Producer

def produce(cluster, topic):
    outcome = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(120)
    assert outcome[0] is None, outcome[0]
"""


def run(pytester: pytest.Pytester, suite: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(PRODUCES + suite)
    return pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:cacheprovider", *options)


@pytest.fixture(autouse=True)
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the pytest below a place for temporary files that nobody else uses; end what it leaves when it fails."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    yield
    for process in processes_of(tmp_path):
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_fixtures_give_clusters_and_topics(pytester: pytest.Pytester, tmp_path: Path) -> None:
    result = run(
        pytester,
        """
def test_one_broker(kafka_broker, kafka_topic):
    assert len(kafka_broker.status().brokers) == 1
    topic = kafka_topic()
    assert topic.startswith("test_one_broker-") and topic != kafka_topic(partitions=2)
    produce(kafka_broker, topic)

def test_topic_alone(kafka_topic):
    kafka_topic(configs={"retention.ms": 1000, "unclean.leader.election.enable": True})

def test_several_brokers(kafka_cluster, kafka_topic):
    assert len(kafka_cluster.status().brokers) == 2
    assert "num.io.threads=3" in kafka_cluster.files.properties(2).read_text()
    produce(kafka_cluster, kafka_topic(replication_factor=2))

def test_one_of_its_own(kafka_cluster_factory):
    cluster = kafka_cluster_factory(options={"message.max.bytes": "1234"})
    assert "message.max.bytes=1234" in cluster.files.properties(1).read_text()
    produce(cluster, cluster.create_topic("t"))
""",
        "-o",
        "kafka_cluster_brokers=2",
        "-o",
        "kafka_cluster_options=num.io.threads = 3",
    )
    result.assert_outcomes(passed=4)
    assert list((tmp_path / "temporary").glob("kafkatool*")) == []


def test_an_option_without_a_value_is_refused(pytester: pytest.Pytester) -> None:
    result = run(pytester, "def test_it(kafka_broker): pass", "-o", "kafka_cluster_options=num.io.threads")
    result.assert_outcomes(errors=1)
    assert "'num.io.threads' is not name=value" in result.stdout.str()


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["kafka_cluster", "kafka_cluster_factory"])
def test_a_group_works_though_a_broker_was_killed_before_there_was_one(pytester: pytest.Pytester, fixture: str) -> None:
    run(
        pytester,
        f"""
from confluent_kafka import Consumer

def test_first(kafka_cluster_factory, request):
    cluster = request.getfixturevalue({fixture!r})
    cluster = cluster if {fixture!r} == "kafka_cluster" else cluster(brokers=3)
    topic = cluster.create_topic("t")
    cluster.kill_broker(2)
    produce(cluster, topic)
    consumer = Consumer({{"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None and message.value() == b"x"
    consumer.close()
""",
    ).assert_outcomes(passed=1)


def test_what_a_test_broke_is_whole_for_the_next(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
def test_breaks(kafka_broker):
    kafka_broker.faults.silence("*")
    kafka_broker.kill_broker(1)

def test_freezes(kafka_broker, kafka_topic):
    produce(kafka_broker, kafka_topic())
    kafka_broker.faults.freeze(1)

def test_comes_to_it_by_name(request):
    request.getfixturevalue("kafka_broker").kill_broker(1)

def test_next(kafka_broker, kafka_topic):
    produce(kafka_broker, kafka_topic())
""",
    ).assert_outcomes(passed=4)


@pytest.mark.slow
def test_a_failure_shows_the_end_of_the_brokers_logs(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
def test_fails(kafka_broker, kafka_topic):
    kafka_broker.faults.answer("Produce", "INVALID_TOPIC_EXCEPTION")
    produce(kafka_broker, kafka_topic())

def test_fails_after_it(kafka_broker, kafka_topic):
    kafka_topic()
    assert False

def test_without_kafka():
    assert False

def test_fails_on_its_own(kafka_cluster_factory):
    assert not kafka_cluster_factory()
""",
    )
    result.assert_outcomes(failed=4)
    shown = result.stdout.str()
    assert len(re.findall("Kafka broker 1: .*server.log", shown)) == 3, shown
    first, after = (
        shown.split(f"___ {name} ___")[1].split("____ test_")[0] for name in ("test_fails", "test_fails_after_it")
    )
    assert "meets a fault: error" in first
    assert "meets a fault: error" not in after, "that was before this test"
    (created,) = [line for line in after.splitlines() if "Created log for partition" in line]
    assert len(created) == 200


@pytest.mark.slow
def test_logs_are_kept_where_they_are_asked_for(pytester: pytest.Pytester, tmp_path: Path) -> None:
    suite = "def test_it(kafka_broker, kafka_cluster_factory):\n    kafka_cluster_factory()\n"
    for _ in range(2):
        run(pytester, suite, "--kafka-logs", str(tmp_path / "logs")).assert_outcomes(passed=1)
    kept = [path.relative_to(tmp_path / "logs").parts for path in (tmp_path / "logs").glob("**/server.log")]
    assert len(kept) == 4 and len({run for run, *_ in kept}) == 2, "each run has a place of its own"
    assert {name for _, name, *_ in kept} > {"kafka_broker"}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_workers_of_xdist_have_a_cluster_each_or_share_one(
    pytester: pytest.Pytester, tmp_path: Path, shared: bool
) -> None:
    pytest.importorskip("xdist")
    result = run(
        pytester,
        f"""
import os, pathlib, pytest

@pytest.mark.parametrize("number", range(6))
def test_it(kafka_broker, kafka_topic, number):
    produce(kafka_broker, kafka_topic())
    pathlib.Path({str(tmp_path)!r}, f"seen-{{os.getpid()}}").write_text(kafka_broker.bootstrap)
""",
        "-n2",
        *(["--kafka-shared"] if shared else []),
    )
    result.assert_outcomes(passed=6)
    seen = [path.read_text() for path in tmp_path.glob("seen-*")]
    assert len(seen) == 2 and len(set(seen)) == (1 if shared else 2)
    eventually(lambda: not processes_of(tmp_path / "temporary"), "the clusters to end")
    eventually(lambda: not list((tmp_path / "temporary").glob("kafkatool*")), "their directories to go")


def test_asyncio_twins_are_awaited(pytester: pytest.Pytester) -> None:
    run(
        pytester,
        """
import asyncio
from aiokafka import AIOKafkaProducer

def test_it(async_kafka_broker, async_kafka_topic, async_kafka_cluster_factory):
    async def story():
        topic = await async_kafka_topic()
        with await async_kafka_broker.faults.answer("Produce", "NOT_LEADER_FOR_PARTITION", times=1) as fault:
            async with AIOKafkaProducer(bootstrap_servers=async_kafka_broker.bootstrap) as producer:
                await producer.send_and_wait(topic, b"x")
            assert fault.hits == 1
        own = await async_kafka_cluster_factory()
        await own.kill_broker(1)
        await own.start_broker(1)
        assert (await own.status()).brokers[0].pid
    asyncio.run(story())
""",
    ).assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_suite_whose_warnings_are_errors(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import gc

def test_killed(kafka_broker, kafka_topic):
    produce(kafka_broker, kafka_topic())
    kafka_broker.kill_broker(1)
    kafka_broker.start_broker(1)
    gc.collect()

def test_restored(kafka_broker):
    kafka_broker.kill_broker(1)

def test_faulty(kafka_broker):
    gc.collect()
    with kafka_broker.faults.delay("Fetch", 10):
        pass

def test_own(kafka_cluster_factory):
    kafka_cluster_factory()

def test_last():
    gc.collect()
""",
        "-W",
        "error",
    )
    result.assert_outcomes(passed=5)


@pytest.mark.slow
def test_a_shared_cluster_whose_warnings_are_errors_is_left_whole(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import gc, time

def test_one(kafka_broker):
    gc.collect()
    fault = kafka_broker.faults.freeze(1)

def test_other(kafka_broker):
    time.sleep(3)
    produce(kafka_broker, kafka_broker.create_topic("t"))
    gc.collect()
""",
        "-W",
        "error",
        "-n",
        "2",
        "--kafka-shared",
    )
    result.assert_outcomes(passed=2)


@pytest.mark.slow
def test_who_breaks_a_shared_cluster_has_it_alone(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """Three tests that are under way at once would end all three brokers, and wait for each other in vain."""
    result = run(
        pytester,
        f"""
import pathlib, time, pytest
here = pathlib.Path({str(tmp_path)!r})

@pytest.mark.parametrize("number", [pytest.param(i, marks=pytest.mark.xdist_group(str(i))) for i in range(3)])
def test_breaks(kafka_cluster, kafka_topic, number):
    topic = kafka_topic()
    (here / f"ready-{{number}}").touch()
    until = time.monotonic() + 120
    while not all((here / f"ready-{{i}}").exists() for i in range(3)):
        assert time.monotonic() < until
        time.sleep(0.02)
    kafka_cluster.kill_broker((1, 2, 3)[number])
    assert sum(broker.pid is None for broker in kafka_cluster.status().brokers) == 1
    produce(kafka_cluster, topic)

@pytest.mark.parametrize("number", range(6))
def test_uses(kafka_cluster, kafka_topic, number):
    assert all(broker.pid for broker in kafka_cluster.status().brokers)
    produce(kafka_cluster, kafka_topic())
    assert all(broker.pid for broker in kafka_cluster.status().brokers)
""",
        "-n3",
        "--dist=loadgroup",
        "--kafka-shared",
    )
    result.assert_outcomes(passed=9)


@pytest.mark.slow
def test_what_a_worker_broke_that_died_is_whole_for_the_next(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
import os, pytest

def test_dies(kafka_broker):
    kafka_broker.kill_broker(1)
    os._exit(1)

@pytest.mark.parametrize("number", range(4))
def test_uses(kafka_broker, kafka_topic, number):
    produce(kafka_broker, kafka_topic())
""",
        "-n2",
        "--kafka-shared",
    )
    result.assert_outcomes(passed=4, failed=1)


@pytest.mark.slow
def test_workers_whose_pytest_is_killed_end_their_clusters(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """One of them can be interrupted; what the other is in cannot, and xdist's own way to end it is taken from it."""
    suite = pytester.makepyfile(
        f"""
import os, pathlib, signal, time
here = pathlib.Path({str(tmp_path)!r})

def test_in_python(kafka_broker):
    (here / "one").write_text(str(os.getpid()))
    while True:
        time.sleep(0.1)

def test_in_c(kafka_cluster_factory):
    kafka_cluster_factory()
    os._exit = lambda code: None
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    (here / "other").write_text(str(os.getpid()))
    time.sleep(600)
"""
    )
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n2", str(suite)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as controller:
        pid_files = [tmp_path / "one", tmp_path / "other"]
        eventually(lambda: all(f.exists() and f.read_text() for f in pid_files), "the tests to begin")
        one, other = (psutil.Process(int(f.read_text())) for f in pid_files)
        controller.kill()
    try:
        temporary = tmp_path / "temporary"
        eventually(lambda: not processes_of(temporary), "the clusters to end")
        eventually(lambda: not list(temporary.glob("kafkatool*")), "their directories to go")
        eventually(lambda: not one.is_running(), "the worker that can be interrupted to end")
        assert other.is_running()
    finally:
        other.kill()
