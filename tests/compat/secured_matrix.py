"""kt and Kafka's own tools do the same steps on real clusters behind SASL, TLS and ACLs; what they leave is compared.

What is expected is what the version's tools leave behind, logged in at ZooKeeper by SASL (1.1.1 and 2.8.2), or at brokers by
SASL_SSL (3.9.1, whose tools know no ZooKeeper). Against it stands kt by each way to get in. Facts by ZooKeeper have also who
may do what with every node of a topic.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kafkatool.core.zookeeper.session import ZooKeeper
from tests.compat import request_matrix, tool_matrix
from tests.compat.java_tools import JavaTools
from tests.compat.request_actors import Kt as KtByRequest
from tests.compat.request_actors import KtByZooKeeper, Tools
from tests.compat.request_matrix import Columns, Progress
from tests.compat.request_rows import ROWS
from tests.compat.request_rows import Stage as RequestStage
from tests.compat.secured_kafka import SecuredKafka
from tests.compat.tool_stage import Actor, KafkaTools, Kt, Stage
from tests.steady import LASTING

BY_ZOOKEEPER: Final = ("1.1.1-secured", "2.8.2-secured")
BY_REQUEST: Final = "3.9.1-secured"
CLUSTERS: Final = (*BY_ZOOKEEPER, BY_REQUEST)


class ToolsBehindLogin(KafkaTools):
    """Tools that log in at ZooKeeper. ReplicaVerificationTool cannot log in at brokers."""

    def replicas_equal(self, bootstrap: str, topic: str) -> bool:
        """Return what is known of the row's replicas: they are equal."""
        return True


def compare(cluster: str, directory: Path, progress: Progress, *, short: bool) -> Columns:
    """Play all rows (``short``: those of the tests) on one real cluster, by each actor and way in turn."""
    directory.mkdir(parents=True, exist_ok=True)
    version = cluster.partition("-")[0]
    by_request = cluster == BY_REQUEST
    options = {**LASTING, **(request_matrix.OPTIONS if by_request else tool_matrix.OPTIONS)}
    with SecuredKafka(version, directory / "kafka", brokers=3, options=options) as kafka:
        play = _by_request if by_request else _by_zookeeper
        return play(kafka, directory, progress, short=short)


def _by_zookeeper(kafka: SecuredKafka, directory: Path, progress: Progress, *, short: bool) -> Columns:
    tools = ToolsBehindLogin(kafka.version, directory / "tools", kafka)
    environment = kafka.access.environment
    actors: dict[str, Actor] = {"tools": tools, "SASL": Kt(environment=environment)}
    if kafka.version != "1.1.1":  # whose ZooKeeper has no TLS
        actors["TLS"] = Kt(_tls(kafka), environment)
    played = {}
    with ZooKeeper(kafka.connect, security=kafka.access.zookeeper) as zk:
        for name, actor in actors.items():
            (own := directory / f"plans-{name}").mkdir()
            where = (kafka.connect, kafka.bootstrap)
            stage = Stage(*where, actor, tools, own, f"{name.lower()}-", zk, kafka.access.librdkafka)
            played[name] = tool_matrix.play(stage, _of(name, progress), short=short)
    expected = played.pop("tools")
    rows = [
        row for row in expected if not any(isinstance(found[row], tool_matrix.NotPlayed) for found in played.values())
    ]
    return {
        f"{kafka.version} by ZooKeeper, {name}": {
            row: tool_matrix.difference(expected[row], found[row]) for row in rows
        }
        for name, found in played.items()
    }


def _by_request(kafka: SecuredKafka, directory: Path, progress: Progress, *, short: bool) -> Columns:
    rows = [row for row in ROWS if row.short or not short]
    login = {name: kafka.files / f"{file}.properties" for name, file in _LOGINS.items()}
    environment = kafka.access.environment
    with JavaTools(kafka.version, directory / "tools") as java:
        actors = {
            "tools": Tools(java, kafka.bootstrap, login["SASL_SSL"]),
            "by request, SASL_SSL": KtByRequest(kafka.bootstrap, "--command-config", str(login["SASL_SSL"])),
            "by request, SSL": KtByRequest(kafka.bootstrap_ssl, "--command-config", str(login["SSL"])),
            "by ZooKeeper, SASL": KtByZooKeeper(kafka.connect, environment=environment),
            "by ZooKeeper, TLS": KtByZooKeeper(*_tls(kafka)[1:], environment=environment),
        }
        played = {}
        for number, (name, actor) in enumerate(actors.items()):
            (own := directory / f"plans-{number}").mkdir()
            stage = RequestStage(kafka, actor, own, f"way{number}-", kafka.access.librdkafka)
            played[name] = request_matrix.play(stage, rows, _of(name, progress))
    expected = played.pop("tools")
    return {
        f"{kafka.version} {name}": {row: request_matrix.difference(expected[row], found[row]) for row in expected}
        for name, found in played.items()
    }


_LOGINS: Final[Mapping[str, str]] = {"SASL_SSL": "admin-scram-sha-512", "SSL": "admin-ssl"}


def _of(actor: str, progress: Progress) -> Progress:
    """Return what tells of that actor's rows."""
    return lambda row: progress(f"{actor}: {row}")


def _tls(kafka: SecuredKafka) -> tuple[str, ...]:
    return ("--zookeeper", kafka.connect_tls, "--zk-tls-config-file", str(kafka.files / "zk-tls.properties"))
