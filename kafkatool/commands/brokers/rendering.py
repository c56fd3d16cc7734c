"""Text, rows and columns of ``kt brokers``. Nothing here prints or reads flags."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kafkatool.commands.shared.byte_sizes import byte_size
from kafkatool.commands.shared.output import Answer, error_item
from kafkatool.commands.shared.table import table_lines
from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.operations.brokers.overview import BrokerRow, Spread, spread

COLUMNS: Final = (
    *("broker", "host", "port", "rack", "live", "controller", "software"),
    *("leaders", "preferred", "replicas", "out_of_isr", "imbalance"),
    *("bytes", "free_bytes", "offline_log_dirs", "leader_throttle", "follower_throttle"),
)
HEADING: Final = (
    *("BROKER", "HOST", "RACK", "SOFTWARE", "LEADERS", "PREFERRED", "REPLICAS", "OUT OF ISR"),
    *("IMBALANCE", "BYTES", "LEAST FREE", "THROTTLE"),
)
WORDS: Final = (1, 2, 3)  # columns of the text that are no numbers


def answer(rows: Sequence[BrokerRow], silent: Mapping[int, BrokerUnreachableError], cluster_id: str | None) -> Answer:
    """Render the rows, with an error for each broker that is registered and did not answer."""
    errors = [error_item(error, broker=broker) for broker, error in sorted(silent.items())]
    return Answer(list(_lines(rows)), [_item(row) for row in rows], COLUMNS, cluster_id, errors)


def _item(row: BrokerRow) -> dict[str, Any]:
    dirs = row.log_dirs
    return {
        "broker": row.broker,
        "host": row.host,
        "port": row.port,
        "rack": row.rack,
        "live": row.live,
        "controller": row.controller,
        "software": None if row.release is None else str(row.release),
        "leaders": row.leaders,
        "preferred": row.preferred,
        "replicas": row.replicas,
        "out_of_isr": row.out_of_isr,
        "imbalance": round(row.imbalance, 4),
        "bytes": None if dirs is None else {found.path: found.bytes for found in dirs},
        "free_bytes": None if dirs is None else {found.path: found.free_bytes for found in dirs},
        "offline_log_dirs": None if dirs is None else [found.path for found in dirs if found.offline],
        "leader_throttle": row.leader_rate,
        "follower_throttle": row.follower_rate,
    }


def _lines(rows: Sequence[BrokerRow]) -> Iterator[str]:
    if not rows:
        yield "no broker is registered"
        return
    yield from table_lines([HEADING, *map(_cells, rows)], left=WORDS)
    for row in rows:
        for found in row.log_dirs or ():
            if found.offline:
                yield f"broker {row.broker}: {found.path} is offline"
            elif len(row.log_dirs or ()) > 1:
                yield f"broker {row.broker}: {found.path} {byte_size(found.bytes)}, {byte_size(found.free_bytes)} free"
    for name, found_spread in spread(rows).items():
        yield f"{name}: {_spread(name, found_spread)}"


def _cells(row: BrokerRow) -> list[str]:
    host = "-" if row.host is None else f"{row.host}:{row.port}"
    return [
        f"{row.broker}*" if row.controller else str(row.broker),
        host if row.live else "- (dead)",
        row.rack or "-",
        "-" if row.release is None else str(row.release),
        str(row.leaders),
        str(row.preferred),
        str(row.replicas),
        str(row.out_of_isr),
        f"{row.imbalance * 100:.1f}%",
        "-" if row.bytes is None else byte_size(row.bytes),
        "-" if row.least_free is None else byte_size(row.least_free),
        _throttle(row),
    ]


def _throttle(row: BrokerRow) -> str:
    rates = [rate for rate in dict.fromkeys((row.leader_rate, row.follower_rate)) if rate is not None]
    return "/".join(f"{rate} B/s" for rate in rates) or "-"


def _spread(name: str, found: Spread) -> str:
    def write(count: int) -> str:
        return byte_size(count) if name == "bytes" else str(count)

    ratio = "" if found.ratio is None else f", {found.ratio:.2f} to 1"
    return f"{write(found.least)} to {write(found.most)} a live broker{ratio}"
