"""The pytest plugin: fixtures with Kafka clusters, and what makes them fit for a test suite. See docs/testing.md.

Nothing of a broker is imported before a test asks for a cluster: every pytest run loads this file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kafkatool import EmbeddedCluster
    from kafkatool.testing.turns import Turns

_ONE, _MANY = "kafka_broker", "kafka_cluster"
_LOG_LINES = 25
_RUNNING: pytest.StashKey[dict[str, EmbeddedCluster]] = pytest.StashKey()
"""Of the run: the clusters of the session's fixtures. Of a test: those it made, or came to by another fixture."""
_LOG_ENDS: pytest.StashKey[dict[Path, int]] = pytest.StashKey()
"""Of a test: how long the session's brokers' logs were when it began."""
_TURNS: pytest.StashKey[Turns] = pytest.StashKey()
"""Of a run whose workers share clusters: whose turn it is on them."""
_STARTED_HERE: pytest.StashKey[list[EmbeddedCluster]] = pytest.StashKey()
"""Of a worker of xdist: every cluster that it has started or shares; some may have ended."""
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("kafka_cluster_brokers", "brokers of the fixture kafka_cluster (default 3)", default="3")
    help_ = "properties of the session's brokers, as name=value; they win over those of an embedded cluster"
    parser.addini("kafka_cluster_options", help_, type="linelist", default=[])
    group = parser.getgroup("kafkatool")
    group.addoption("--kafka-logs", metavar="DIR", type=Path, help="keep the clusters' logs and data below DIR")
    group.addoption(
        "--kafka-shared", action="store_true", help="with pytest-xdist: let all workers use the same session clusters"
    )
    group.addoption(
        "--kafka-security",
        type=str.lower,
        choices=("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        default="plaintext",
        help="what the clusters of the fixtures speak; cluster.client(...) makes the configuration of their clients",
    )


# --- clusters of the session --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Run a cluster of one broker for the whole test run; ``kafka_broker.bootstrap`` is what clients want."""
    yield from _session_cluster(request, _ONE, 1)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Run a cluster of three brokers for the whole test run; the ini option ``kafka_cluster_brokers`` says how many."""
    yield from _session_cluster(request, _MANY, int(request.config.getini("kafka_cluster_brokers")))


def _session_cluster(request: pytest.FixtureRequest, name: str, brokers: int) -> Iterator[EmbeddedCluster]:
    from kafkatool import EmbeddedCluster

    config = request.config
    shared = config.getoption("--kafka-shared") and hasattr(config, "workerinput")
    run, worker = _run(config)
    security, options = config.getoption("--kafka-security"), _options(config)
    if directory := _kept(config, name if shared else f"{name}{worker}"):
        cluster = EmbeddedCluster(brokers, directory=directory, options=options, security=security)
    else:
        own = f"{run}-{name}" if shared else None
        cluster = EmbeddedCluster(brokers, name=own, options=options, security=security)
    running = config.stash.setdefault(_RUNNING, {})
    _watched(config, cluster)
    if shared:
        turns = _turns(request)
        turns.begin()
        running[name] = cluster.share(before_breaking=turns.have_alone)
        try:
            cluster.restore()  # a worker may have been killed that broke it
            _prepare(cluster, brokers, options)
            yield cluster
            if turns.uses:  # the others go on with it
                cluster.restore()
        finally:
            cluster.down()
    else:
        with cluster:
            running[name] = cluster
            _prepare(cluster, brokers, options)
            yield cluster
    del running[name]


def _turns(request: pytest.FixtureRequest) -> Turns:
    """Return the turns of the run's workers, by files in the directory that pytest has for all of them."""
    from kafkatool.testing.turns import Turns

    stash = request.config.stash
    if _TURNS not in stash:
        stash[_TURNS] = Turns(request.getfixturevalue("tmp_path_factory").getbasetemp().parent)
    return stash[_TURNS]


def _watched(config: pytest.Config, cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Return the cluster, which ends soon after xdist's pytest even if that is killed."""
    if hasattr(config, "workerinput"):
        if _STARTED_HERE not in config.stash:
            from kafkatool.testing.orphans import watch_parent

            clusters: list[EmbeddedCluster] = []
            config.stash[_STARTED_HERE] = clusters

            def let_go() -> None:
                for one in clusters:
                    one.let_go()

            watch_parent(let_go)
        config.stash[_STARTED_HERE].append(cluster)
    return cluster


def _options(config: pytest.Config) -> dict[str, str]:
    options = {}
    for line in config.getini("kafka_cluster_options"):
        name, given, value = line.partition("=")
        if not given:
            raise pytest.UsageError(f"kafka_cluster_options: {line!r} is not name=value")
        options[name.strip()] = value.strip()
    return options


def _prepare(cluster: EmbeddedCluster, brokers: int, options: Mapping[str, str] | None = None) -> None:
    """Make of several brokers a cluster that has groups even if the first thing a test does is to kill one."""
    if brokers > 1 and int((options or {}).get("offsets.topic.replication.factor", 1)) <= brokers:
        cluster.create_offsets_topic()


def _run(config: pytest.Config) -> tuple[str, str]:
    """Return a name for the run, which all workers of xdist know, and one for this worker."""
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    if worker:
        return str(worker["testrunuid"]), f"-{worker['workerid']}"
    return f"{_STARTED}-{os.getpid()}", ""


_STARTED = time.strftime("%Y-%m-%dT%H-%M-%S")


def _kept(config: pytest.Config, name: str) -> Path | None:
    """Return where a cluster is to leave its logs; None: nowhere. Another run has another place."""
    logs: Path | None = config.getoption("--kafka-logs")
    return logs and logs.absolute() / _run(config)[0] / name


# --- what a test makes --------------------------------------------------------------------------------------------


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Make a fresh topic by each call: ``kafka_topic(partitions=3, configs={...})`` returns its name.

    It is on ``kafka_cluster`` where the test uses that, else on ``kafka_broker``, and goes with it.
    """
    name = _MANY if {_MANY, f"async_{_MANY}"} & set(request.fixturenames) else _ONE
    cluster: EmbeddedCluster = request.getfixturevalue(name)
    request.node.stash.setdefault(_RUNNING, {})[name] = cluster
    test = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")[:100]

    def make(partitions: int = 1, **kwargs: Any) -> str:
        return cluster.create_topic(f"{test}-{os.getpid()}-{next(_numbers)}", partitions, **kwargs)

    return make


@pytest.fixture
def kafka_cluster_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., EmbeddedCluster]]:
    """Start a cluster of this test's own by each call; they end with the test.

    ``kafka_cluster_factory(brokers=2, options={"min.insync.replicas": "2"})``: the arguments are `EmbeddedCluster`'s.
    """
    from kafkatool import EmbeddedCluster

    with contextlib.ExitStack() as running:

        def start(brokers: int = 1, **kwargs: Any) -> EmbeddedCluster:
            name = f"own-{os.getpid()}-{next(_numbers)}"
            kwargs.setdefault("directory", _kept(request.config, name))
            kwargs.setdefault("security", request.config.getoption("--kafka-security"))
            cluster = running.enter_context(_watched(request.config, EmbeddedCluster(brokers, **kwargs)))
            request.node.stash.setdefault(_RUNNING, {})[name] = cluster
            _prepare(cluster, brokers, kwargs.get("options"))
            return cluster

        yield start


# --- the same for asyncio: methods and factories are awaited ------------------------------------------------------


@pytest.fixture
def async_kafka_broker(kafka_broker: EmbeddedCluster) -> Any:
    """``kafka_broker``, whose methods are awaited."""
    return _awaited(kafka_broker)


@pytest.fixture
def async_kafka_cluster(kafka_cluster: EmbeddedCluster) -> Any:
    """``kafka_cluster``, whose methods are awaited."""
    return _awaited(kafka_cluster)


@pytest.fixture
def async_kafka_topic(kafka_topic: Callable[..., str]) -> Any:
    """``kafka_topic``, to be awaited."""
    return _awaited(kafka_topic)


@pytest.fixture
def async_kafka_cluster_factory(kafka_cluster_factory: Callable[..., EmbeddedCluster]) -> Any:
    """``kafka_cluster_factory``, to be awaited; so are the methods of what it returns."""

    async def start(*arguments: Any, **kwargs: Any) -> Any:
        return _awaited(await _awaited(kafka_cluster_factory)(*arguments, **kwargs))

    return start


def _awaited(target: Any) -> Any:
    from kafkatool.testing.in_thread import InThread

    return InThread(target)


# --- around each test ---------------------------------------------------------------------------------------------


def _clusters_of(item: pytest.Item) -> dict[str, EmbeddedCluster]:
    """Return the clusters that run now and that the test has to do with."""
    session = item.config.stash.get(_RUNNING, {})
    named = {name: session[name] for name in getattr(item, "fixturenames", ()) if name in session}
    return named | item.stash.get(_RUNNING, {})


def _may_use_shared(item: pytest.Item) -> bool:
    """Tell whether the test may come to a cluster of the run: by name, or by ``request.getfixturevalue``."""
    names = set(getattr(item, "fixturenames", ()))
    own_alone = any("kafka_cluster_factory" in name for name in names)
    return bool(names & {_ONE, _MANY}) or ("request" in names and not own_alone)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Wait for the turn of tests on shared clusters, and remember where the logs end: what is there is not this test's."""
    clusters = item.config.stash.get(_RUNNING, {}).values()
    turns = item.config.stash.get(_TURNS, None)
    if turns and clusters and _may_use_shared(item):
        turns.begin()
        for cluster in clusters:
            cluster.restore()  # a worker may have been killed that broke it
    item.stash[_LOG_ENDS] = {path: size for cluster in clusters for path, size in cluster.log_ends().items()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Give the next test whole clusters: no fault, and every broker back.

    All of the session's: a test may have come to one by a fixture of its own, or by ``request.getfixturevalue``. Of those
    that workers share only what this test could break: what another's breaks now is the other's to mend.
    """
    try:
        yield
    finally:
        turns = item.config.stash.get(_TURNS, None)
        try:
            if nextitem is not None and (turns is None or turns.uses):  # else they have ended
                for cluster in item.config.stash.get(_RUNNING, {}).values():
                    cluster.restore()
        finally:
            if turns is not None:
                turns.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Show the end of what each broker has logged since the test began in the report of one that failed."""
    report = yield
    if report.failed:
        for cluster in _clusters_of(item).values():
            for title, words in cluster.last_words(_LOG_LINES, item.stash.get(_LOG_ENDS, {})).items():
                report.sections.append((title, words))
    return report
