"""What ``kt migrate check`` says of a real cluster, and the wait until it says just what it should."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pytest
from click.testing import CliRunner

from kafkatool.commands.main import kt
from kafkatool.core.client.connection import Connection
from kafkatool.core.operations.migration.conditions import BLOCKERS
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.zookeeper.kazoo_link import KazooLink
from tests.compat.migrating_kafka import MigratingKafka
from tests.waiting import awaited

Rows = dict[str, dict[str, Any]]
QUESTIONS: Final = {
    "ApiVersions",
    "DescribeCluster",
    "DescribeConfigs",
    "DescribeLogDirs",
    "DescribeQuorum",
    "Metadata",
}
_STEPS = ("next", "back")


@contextmanager
def only_reading() -> Iterator[None]:
    """Fail who writes to ZooKeeper while the block runs, or asks a broker or controller for what is no mere question."""

    def written(*_: object, **__: object) -> None:
        raise AssertionError("written to ZooKeeper")

    def sent(connection: Connection, api: Api, *args: Any, **options: Any) -> object:
        assert api.name in QUESTIONS, api.name
        return send(connection, api, *args, **options)

    send = Connection.send
    with pytest.MonkeyPatch.context() as patch:
        for name in ("create", "set", "delete", "commit", "set_acls"):
            patch.setattr(KazooLink, name, written)
        patch.setattr(Connection, "send", sent)
        yield


def check(kafka: MigratingKafka, *flags: str) -> Rows:
    """Return the items by their ids; the exit code is what they say, and nothing is written."""
    both = ["--zookeeper", kafka.connect, "--bootstrap-server", kafka.bootstrap]
    with only_reading():
        result = CliRunner().invoke(kt, ["migrate", "check", *both, "--output", "json", *flags], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    found = json.loads(result.stdout)
    rows = {item["id"]: item for item in found["items"]}
    assert not found["errors"] and bool(result.exit_code) == any(
        i["severity"] == "blocker" or (i["severity"] == "unknown" and name in BLOCKERS) for name, i in rows.items()
    )
    return rows


def told_alone(
    kafka: MigratingKafka, wanted: Mapping[str, tuple[str, str]], *flags: str, within_s: float = 240
) -> Rows:
    """Wait until just those conditions are told, each as severity and words of its evidence, and no other.

    That controllers were not asked is a note, and no finding.
    """
    told: list[dict[str, tuple[str, str]]] = []

    def look() -> Rows | None:
        rows = check(kafka, *flags)
        told.append(
            {
                name: (row["severity"], row["evidence"])
                for name, row in rows.items()
                if row["severity"] != "ok" and name not in _STEPS and row["evidence"] != "not asked"
            }
        )
        found = told[-1]
        fits = found.keys() == wanted.keys() and all(
            found[name][0] == severity and words in found[name][1] for name, (severity, words) in wanted.items()
        )
        return rows if fits else None

    try:
        rows = awaited(look, f"{dict(wanted)}", within_s)
    except AssertionError as e:
        raise AssertionError(f"wanted {dict(wanted)}, found {told[-1]}") from e
    print(", ".join(f"{name}: {row[0]} ({row[1]})" for name, row in told[-1].items()) or "nothing is told")
    return rows
