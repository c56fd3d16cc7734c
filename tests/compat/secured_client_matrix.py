"""All clients against three secured brokers, by each way to log in: the cells of the second table of docs/clients.md.

For each way, every client's producer and group member are at work while the broker that leads one partition of each
topic is killed and comes back: nothing acknowledged is lost to the member, and what it has committed at its end is all
there is. Who logs in by name is alice, who may use topics and groups of that way's name alone, as may who shows no
certificate; with one it is the super user ``CN=admin``.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kafkatool.broker.embedded.cluster import EmbeddedCluster
from kafkatool.core.client.access import BrokerAccess
from tests.compat.client_matrix import AT_ONCE, OPTIONS, Matrix, Row, Way, prepare
from tests.compat.client_programs import Program

SSL: Final = "SSL"
MUTUAL_TLS: Final = "mutual TLS"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
CELLS_OF: Final = {  # by the security of a cluster
    "sasl_plaintext": tuple(f"SASL_PLAINTEXT {mechanism}" for mechanism in MECHANISMS),
    "sasl_ssl": (SSL, MUTUAL_TLS, *(f"SASL_SSL {mechanism}" for mechanism in MECHANISMS)),
}
CELLS: Final = tuple(cell for cells in CELLS_OF.values() for cell in cells)
_RIGHTS: Final = (("Read", "topic"), ("Write", "topic"), ("Describe", "topic"), ("Read", "group"))


def run(clients: Sequence[str], directory: Path, tell: Callable[[str], None] = lambda _: None) -> dict[str, Row]:
    """Client -> its row. ``directory`` gets the brokers' data and the clients' words."""
    rows = {client: Row() for client in clients}
    programs = prepare(rows, tell)
    if not programs:
        return rows
    for security in CELLS_OF:
        _play(security, programs, rows, directory, tell)
    return rows


def _play(
    security: str,
    programs: Mapping[str, Program],
    rows: Mapping[str, Row],
    directory: Path,
    tell: Callable[[str], None],
) -> None:
    """Have every client in by each way that a cluster has."""
    options = dict(OPTIONS)
    if SSL in CELLS_OF[security]:
        options["listener.name.ssl.ssl.client.auth"] = "requested"
    with (
        EmbeddedCluster(3, directory=directory / security, options=options, security=security) as cluster,
        cluster.zookeeper_session() as zk,
    ):
        if SSL in CELLS_OF[security]:
            _without_certificate(cluster)
        names = list(programs)
        for cell in CELLS_OF[security]:
            way = _way(cluster, cell)
            for some in (names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)):
                tell(f"{cell}: {', '.join(some)}")
                with ExitStack() as processes:
                    matrix = Matrix(cluster, zk, directory, {client: programs[client] for client in some}, rows, way)
                    matrix.join(processes, cell)
                    matrix.kill(cell)


def _way(cluster: EmbeddedCluster, cell: str) -> Way:
    """Return how clients get in for that cell, and give who they then are his rights."""
    name = cell.lower().replace(" ", "-")
    user, file = {SSL: ("ANONYMOUS", "ssl"), MUTUAL_TLS: ("CN=admin", "admin-ssl")}.get(
        cell, ("alice", f"alice-{cell.partition(' ')[2].lower()}")
    )
    if cell != MUTUAL_TLS:
        for operation, kind in _RIGHTS:
            cluster.allow(user, operation, **{kind: name}, prefixed=True)

    def config(client: str) -> Path:
        kind = ".properties" if client.startswith("java-") else ".librdkafka.properties"
        return cluster.security.directory / (file + kind)

    bootstrap = cluster.bootstrap if user == "alice" else cluster.bootstrap_ssl
    return Way(name, bootstrap, cluster.client("confluent"), BrokerAccess(cluster.security.as_admin()), config)


def _without_certificate(cluster: EmbeddedCluster) -> None:
    """Write the files of a client that shows no certificate, of those of one that does."""
    for kind in (".properties", ".librdkafka.properties"):
        lines = (cluster.security.directory / f"admin-ssl{kind}").read_text().splitlines(keepends=True)
        kept = [line for line in lines if line.startswith(("security.protocol", "ssl.truststore", "ssl.ca"))]
        (cluster.security.directory / f"ssl{kind}").write_text("".join(kept))
