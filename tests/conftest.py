"""Fixtures shared by all tests: a real ZooKeeper for the run, a fresh chroot for each test."""

import itertools
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from kafkatool.broker.embedded.zookeeper_process import ZooKeeperProcess
from kafkatool.core.operations.brokers import answers
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.ports import free_port

os.environ.setdefault("KAFKATOOL_CLASS_DATA", "off")  # no test leaves a process that makes an archive behind
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background of a shell has Ctrl-C ignored

# How long one example takes is the machine's business: one that is busy must not make a property false, or flaky.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change is judged by what it changes, so `.ci/run` draws the same examples each time; every other run draws new ones.
settings.register_profile("judge", settings.get_profile("any machine"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "any machine"))

_READY_MS = 100_000
_SESSION_MS = 60_000  # the longest there is: no test loses its session because the machine was busy with others
_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """Give one ZooKeeper process for the whole run."""
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), free_port()).start()
    try:
        yield server.wait_ready(_READY_MS)
    finally:
        server.stop(gentle=False)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kt in this process wait for a broker that stands still, where it would go on without it after some seconds.

    What a test wants to be short it sets itself: in its body, or in a fixture that asks for this one.
    """
    monkeypatch.setitem(answers.ask_brokers.__kwdefaults__ or {}, "limit_s", 120.0)
    monkeypatch.setattr("kafkatool.core.operations.verification.replica_reader.TIMEOUT_MS", 120_000)
    monkeypatch.setattr("kafkatool.commands.replica_verify.command.STALL_S", 120.0)
    monkeypatch.setattr("kafkatool.core.operations.requests.comparing.SETTLE_S", 120.0)
    monkeypatch.setattr("kafkatool.core.operations.requests.reassignments.ENDING_S", 120.0)
    monkeypatch.setattr("kafkatool.core.operations.drain.requested_throttles.SETTLE_S", 120.0)
    monkeypatch.setattr("kafkatool.commands.reassign.request_mode.LOG_DIRS_TIMEOUT_S", 120.0)
    monkeypatch.setattr("kafkatool.core.operations.health.by_request.ANSWER_MS", 120_000)
    monkeypatch.setattr("kafkatool.core.operations.migration.controllers.LIMIT_MS", 120_000)


@pytest.fixture
def zk_connect(zookeeper_server: ZooKeeperProcess) -> str:
    """Connect string with a chroot of this test's own, made."""
    connect = f"{zookeeper_server.connect}/test-{next(_numbers)}"
    with ZooKeeper(connect, create_chroot=True):
        return connect


@pytest.fixture
def zk(zk_connect: str) -> Iterator[ZooKeeper]:
    """Give a session on that chroot."""
    with ZooKeeper(zk_connect, session_timeout_ms=_SESSION_MS) as session:
        yield session
