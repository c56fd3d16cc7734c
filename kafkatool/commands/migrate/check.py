"""``kt migrate check``: each condition of a migration to KRaft with its evidence and its remedy. Reads only."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from kafkatool.commands.shared.bootstrap import bootstrap_of, connect_brokers
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_id_option,
    connect,
    output_option,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Output, paint
from kafkatool.commands.shared.settings import SettingOption
from kafkatool.core.errors import UsageError
from kafkatool.core.operations.migration import conditions, phases
from kafkatool.core.operations.migration.conditions import Row, Severity
from kafkatool.core.operations.migration.phases import STEPS, Phase
from kafkatool.core.operations.migration.reading import Evidence, read

COLUMNS: Final = ("id", "severity", "evidence", "remedy")
COLOURS: Final = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.UNKNOWN: "yellow", Severity.BLOCKER: "red"}


@click.command(
    cls=KtCommand,
    examples=(
        "kt migrate check --zookeeper zk1:2181/kafka --bootstrap-server b1:9092",
        "kt migrate check --zookeeper zk1:2181/kafka --bootstrap-server b1:9092 --strict --output json",
    ),
    columns=COLUMNS,
    notes=(
        "severity: ok, note, warning, blocker, unknown (it could not be read). The first item, id phase, has the phase and "
        "its evidence, the last two, next and back, the steps from there. Nothing is written.",
        "Exit code 1: a blocker, or a condition that may be one and could not be read; with --strict also a warning.",
        "Not asked are the KRaft controllers: a migration whose brokers are all KRaft may be finalized already.",
    ),
)
@zookeeper_option
@click.option(
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT[,HOST:PORT…]",
    cls=SettingOption,
    help="Brokers of the same cluster. [env KAFKATOOL_BOOTSTRAP_SERVER]",
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Properties of the client for the brokers.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@cluster_id_option
@output_option
def check(
    zookeeper: str, servers: str | None, command_config: Path | None, strict: bool, cluster_id: str | None, out: Output
) -> int:
    """Say whether a cluster with ZooKeeper is ready for KRaft, and how far a migration under way is."""
    if servers is None:
        raise UsageError("give --bootstrap-server too: a migration is seen from both sides")
    bootstrap = bootstrap_of(servers, command_config, "kt migrate")
    with connect(zookeeper, cluster_id=cluster_id) as zk, connect_brokers(bootstrap, cluster_id=cluster_id) as client:
        evidence = read(zk, client)
    rows = conditions.check(evidence)
    out.show(_answer(evidence, rows))
    return 1 if conditions.blocked(rows, strict=strict) else 0


def _answer(e: Evidence, rows: Sequence[Row]) -> Answer:
    phase = phases.phase_of(e)
    steps = STEPS[phase]
    inconsistent = phase is Phase.INCONSISTENT
    forward = steps.forward
    if blocking := [row.id for row in rows if conditions.blocked([row], strict=False)]:
        forward = f"remove what blocks, and check again: {', '.join(blocking)}"
    first = _item("phase", Severity.BLOCKER if inconsistent else Severity.OK, f"{phase}: {phases.told(e)}", "")
    items = [first, *(_item(r.id, r.severity, r.evidence, r.remedy) for r in rows if r.id != "phase")]
    items += [_item("next", Severity.NOTE, "", forward), _item("back", Severity.NOTE, "", steps.back)]
    lines = [f"phase: {phase} ({phases.told(e)})"]
    for row in rows:
        if row.id != "phase":
            line = f"{paint(row.severity.ljust(7), COLOURS.get(row.severity))}  {row.id.ljust(18)}  {row.evidence}"
            lines.append(line.rstrip())
            if row.remedy and row.severity is not Severity.OK:
                lines.append(f"{'':29}-> {row.remedy}")
    lines += [f"next: {forward}", f"way back: {steps.back}"]
    return Answer(lines, items, COLUMNS, e.view.cluster_id)


def _item(condition: str, severity: Severity, evidence: str, remedy: str) -> dict[str, Any]:
    return {"id": condition, "severity": severity.value, "evidence": evidence, "remedy": remedy}
