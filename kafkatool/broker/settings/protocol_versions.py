"""The version of each request this broker sends to others, by its inter.broker.protocol.version (BRK-3, table B).

Requests between brokers are not negotiated: the sender picks the version its own setting implies.
Source: Kafka 2.3.1 and 0.10.2.1 server/ReplicaFetcherThread.scala, controller/ControllerChannelManager.scala.
"""

import re
from typing import NamedTuple

from kafkatool.core.errors import ConfigError


class ProtocolVersions(NamedTuple):
    """Versions sent; the last three by the controller."""

    fetch: int
    offset_for_leader_epoch: int | None
    """None: brokers of that age do not know the request."""
    list_offsets: int
    controlled_shutdown: int
    leader_and_isr: int
    update_metadata: int
    stop_replica: int


PROTOCOL_VERSIONS = {
    "0.10.0": ProtocolVersions(2, None, 0, 1, 0, 2, 0),
    "0.10.1": ProtocolVersions(3, None, 1, 1, 0, 2, 0),
    "0.10.2": ProtocolVersions(3, None, 1, 1, 0, 3, 0),
    "0.11.0": ProtocolVersions(5, 0, 2, 1, 0, 3, 0),
    "1.0": ProtocolVersions(5, 0, 2, 1, 1, 4, 0),
    "1.1": ProtocolVersions(7, 0, 2, 1, 1, 4, 0),
    "2.0": ProtocolVersions(8, 1, 3, 1, 1, 4, 0),
    "2.1": ProtocolVersions(10, 2, 4, 1, 1, 4, 0),
    "2.2": ProtocolVersions(10, 2, 5, 2, 2, 5, 1),
    "2.3": ProtocolVersions(11, 3, 5, 2, 2, 5, 1),
}


def parse_protocol_version(text: str) -> str:
    """Turn ``2.3``, ``2.3.1``, ``2.3-IV1`` into ``2.3``. Raises ConfigError outside 0.10.0 to 2.3 (BRK-4)."""
    release = text.partition("-")[0].split(".")
    short = ".".join(release[: 3 if release[0] == "0" else 2])
    if short not in PROTOCOL_VERSIONS:
        raise ConfigError(
            f"inter.broker.protocol.version={text} is not spoken by this broker; use one of "
            f"{', '.join(PROTOCOL_VERSIONS)} on all brokers of the cluster"
        )
    return short


def record_format_of(version: str) -> int:
    """Return the format in which that version of Kafka writes records: 0, 1 or 2 (ADM-89).

    Raises ValueError for what is no version. Source: Kafka 2.8.2 api/ApiVersion.scala.
    """
    found = re.fullmatch(r"(\d+)\.(\d+)(\.\d+)*(-IV\d+)?", version)
    if found is None:
        raise ValueError("must be a version of Kafka, such as 0.10.2 or 2.3")
    release = int(found[1]), int(found[2])
    return 2 if release >= (0, 11) else 1 if release == (0, 10) else 0
