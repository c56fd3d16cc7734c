"""``kt migrate check``: each condition of a migration to KRaft with its evidence and its remedy. Reads only."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from kafkatool.commands.shared.bootstrap import Bootstrap, bootstrap_of, connect_brokers
from kafkatool.commands.shared.options import (
    KtCommand,
    cluster_id_option,
    connect,
    output_option,
    zookeeper_option,
)
from kafkatool.commands.shared.output import Answer, Output, paint
from kafkatool.commands.shared.settings import SettingOption
from kafkatool.core.errors import BrokerUnreachableError, UsageError
from kafkatool.core.operations.migration import conditions, phases
from kafkatool.core.operations.migration.conditions import Row, Severity
from kafkatool.core.operations.migration.controllers import Controllers, ask_controllers, none_answers
from kafkatool.core.operations.migration.phases import STEPS, Phase
from kafkatool.core.operations.migration.reading import Evidence, read

if TYPE_CHECKING:
    from kafkatool.core.client.controllers import ControllerClient

COLUMNS: Final = ("id", "severity", "evidence", "remedy")
COLOURS: Final = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.UNKNOWN: "yellow", Severity.BLOCKER: "red"}


@click.command(
    cls=KtCommand,
    examples=(
        "kt migrate check --zookeeper zk1:2181/kafka --bootstrap-server b1:9092",
        "kt migrate check --zookeeper zk1:2181/kafka --bootstrap-server b1:9092 --strict --output json",
        "kt migrate check --zookeeper zk1:2181/kafka --bootstrap-server b1:9092 --bootstrap-controller c1:9093",
    ),
    columns=COLUMNS,
    notes=(
        "severity: ok, note, warning, blocker, unknown (it could not be read). The first item, id phase, has the phase and "
        "its evidence, the last two, next and back, the steps from there. Nothing is written.",
        "Exit code 1: a blocker, or a condition that may be one and could not be read; with --strict also a warning.",
        "Without --bootstrap-controller a migration whose brokers are all KRaft may be finalized already, and one that is "
        "rolled back looks like one under way. If no controller answers, that is part of what is found, and no error: "
        "rolling_back is told where each address refuses the connection, and ends with 1, as kt cannot see whether every "
        "controller process is stopped.",
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
    "--bootstrap-controller",
    "controllers",
    metavar="HOST:PORT[,HOST:PORT…]",
    help="KRaft controllers of the same cluster, of Kafka 3.7 or later.",
)
@click.option(
    "--command-config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Properties of the client for brokers and controllers.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings too.")
@cluster_id_option
@output_option
def check(
    zookeeper: str,
    servers: str | None,
    controllers: str | None,
    command_config: Path | None,
    strict: bool,
    cluster_id: str | None,
    out: Output,
) -> int:
    """Say whether a cluster with ZooKeeper is ready for KRaft, and how far a migration under way is."""
    if servers is None:
        raise UsageError("give --bootstrap-server too: a migration is seen from both sides")
    bootstrap = bootstrap_of(servers, command_config, "kt migrate")
    asked = bootstrap_of(controllers, command_config, "kt migrate", controllers=True) if controllers else None
    with connect(zookeeper, cluster_id=cluster_id) as zk, connect_brokers(bootstrap, cluster_id=cluster_id) as client:
        evidence = read(zk, client, _ask(asked) if asked is not None else None)
    rows = conditions.check(evidence)
    out.show(_answer(evidence, rows))
    return 1 if conditions.blocked(rows, strict=strict) else 0


def _ask(bootstrap: Bootstrap) -> Controllers:
    """Ask the controllers; that none answers is evidence too."""
    try:
        with connect_brokers(bootstrap) as client:
            return ask_controllers(cast("ControllerClient", client))
    except BrokerUnreachableError as e:
        return none_answers(e)


def _answer(e: Evidence, rows: Sequence[Row]) -> Answer:
    phase = phases.phase_of(e)
    steps = STEPS[phase]
    inconsistent = phase is Phase.INCONSISTENT
    forward = steps.forward
    # whether the controllers are stopped, which is unknown on the way back, is what its own step begins with
    settled = "controllers" if phase is Phase.ROLLING_BACK else None
    if blocking := [row.id for row in rows if conditions.blocked([row], strict=False) and row.id != settled]:
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
