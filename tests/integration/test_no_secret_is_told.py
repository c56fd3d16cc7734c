"""Of a secured cluster whose every secret is known no command says one, with the right credentials or with wrong ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafkatool import EmbeddedCluster
from tests.commands.shared.test_options import TOUCHING_A_CLUSTER
from tests.steady import STEADY

ADMIN, ALICE, WRONG = "a-word-of-the-admin-only", "a-word-of-alice-and-noone", "a-word-that-is-not-right"
BY_REQUEST = ("topics", "reassign", "elect", "replica-verify", "acls", "users", "brokers", "health", "drain")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unhurried")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    directory = tmp_path_factory.mktemp("secured")
    words = {"admin": ADMIN, "alice": ALICE}
    with EmbeddedCluster(1, directory=directory, options=STEADY, security="sasl_ssl", passwords=words) as made:
        made.create_topic("t", 1)
        yield made


def secrets_of(cluster: EmbeddedCluster) -> list[bytes]:
    found = [path.read_bytes().strip() for path in cluster.security.directory.glob("*.password")]
    assert {ADMIN.encode(), ALICE.encode()} <= set(found) and len(found) >= 4  # ZooKeeper's and the stores' too
    return [*found, WRONG.encode()]


def with_wrong_words(file: Path, secrets: list[bytes], to: Path) -> Path:
    text = file.read_bytes()
    for secret in secrets:
        text = text.replace(secret, WRONG.encode()) if b"store" not in file.name.encode() else text
    to.touch(0o600)
    to.write_bytes(text)
    return to


@pytest.mark.spec("SEC-42")
@pytest.mark.parametrize("is_right", [True, pytest.param(False, marks=pytest.mark.slowest)], ids=["right", "wrong"])
def test_no_command_tells_a_secret(cluster: EmbeddedCluster, is_right: bool, tmp_path: Path) -> None:
    secrets = secrets_of(cluster)
    folder, status = cluster.security.directory, cluster.status()
    (tmp_path / "topics.json").write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    plan = '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}'
    files = [folder / "jaas.conf", folder / "admin-scram-sha-256.properties", folder / "admin-plain.properties"]
    if not is_right:
        files = [with_wrong_words(file, secrets, tmp_path / file.name) for file in files]
    jaas, scram, plain = map(str, files)
    password = tmp_path / "new.password"
    password.touch(0o600)
    password.write_text(ALICE)
    given = f"users alter --entity-name alice --add-config SCRAM-SHA-256=[] --password-file {password}"
    for line in (*TOUCHING_A_CLUSTER, given):
        words = line.split(" ")
        if "--reassignment-json-file" in words:
            (tmp_path / words[words.index("--reassignment-json-file") + 1]).write_text(plan)
        ways = [["--zookeeper", cluster.zookeeper, "--zk-auth-file", jaas]]
        if words[0] in BY_REQUEST:
            ways += [["--bootstrap-server", cluster.bootstrap, "--command-config", file] for file in (scram, plain)]
        for way in ways:
            done = subprocess.run(
                [sys.executable, "-m", "kafkatool", "--debug", *words, *way],
                check=False,
                cwd=tmp_path,
                capture_output=True,
                env={**os.environ, "HOME": str(tmp_path)},
                timeout=600,
            )
            said = done.stdout + done.stderr
            assert said
            if line in ("topics list", given):
                assert (done.returncode == 0) == is_right, (words, way, said)
            assert not [secret for secret in secrets if secret in said], (words, way, said)
            if not is_right:
                assert done.returncode, (words, way, said)
    written = [
        path for path in tmp_path.rglob("*") if path.is_file() and str(path) not in (jaas, scram, plain, str(password))
    ]
    logs = [path for path in cluster.files.directory.glob("broker-*/**/*") if path.is_file()]
    for path in [*written, *logs]:
        assert not [secret for secret in secrets if secret in path.read_bytes()], path
    for broker in status.brokers:
        process = psutil.Process(broker.pid)
        told = " ".join([*process.cmdline(), *process.environ().values()]).encode()
        assert not [secret for secret in secrets if secret in told]
