"""Text, rows and columns of ``kt health``. Nothing here prints or reads flags."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkatool.commands.shared.output import Answer, error_item, paint
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.operations.health.checks import Check, Finding, Level, verdict

COLUMNS: Final = ("check", "level", "what", "count", "names")
SHOWN: Final = 5  # names in a line
COLOURS: Final = {Level.OK: "green", Level.DEGRADED: "yellow", Level.CRITICAL: "red"}


def answer(
    checks: Sequence[Check], cluster_id: str | None, *, all_names: bool, errors: Sequence[KafkatoolError] = ()
) -> Answer:
    """Render the checks, the verdict first."""
    worst = verdict(checks)
    items = [_item("verdict", Finding(worst, ""))]
    items += [_item(c.name, finding) for c in checks for finding in c.findings or (Finding(Level.OK, ""),)]
    return Answer(list(_lines(checks, worst, all_names)), items, COLUMNS, cluster_id, [error_item(e) for e in errors])


def failed(error: KafkatoolError) -> Answer:
    """Render a look of several that told nothing."""
    return Answer([f"{paint('the cluster is not known', 'red')}: {error}"], (), COLUMNS, errors=[error_item(error)])


def _item(check: str, finding: Finding) -> dict[str, Any]:
    level, what, names = finding
    return {"check": check, "level": level.word, "what": what, "count": len(names), "names": list(names)}


def _lines(checks: Sequence[Check], worst: Level, all_names: bool) -> Iterator[str]:
    yield f"the cluster is {paint(worst.word, COLOURS[worst])}"
    width = max(len(check.name) for check in checks)
    for check in checks:
        level = paint(check.level.word.ljust(8), COLOURS.get(check.level))
        told = "; ".join(_text(finding, all_names) for finding in check.findings)
        yield f"{level}  {check.name.ljust(width)}  {told}".rstrip()


def _text(finding: Finding, all_names: bool) -> str:
    if not finding.names:
        return finding.what
    names = finding.names if all_names else finding.names[:SHOWN]
    more = len(finding.names) - len(names)
    return f"{finding.what}: {', '.join(names)}{f' and {more} more' if more else ''}"
