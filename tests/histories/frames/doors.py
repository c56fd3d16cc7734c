"""The doors of a cluster's brokers: one set of rules for all, and one record of what goes through them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkatool.broker.embedded.ports import HOST
from tests.compat.real_kafka import RealKafka
from tests.faults.proxy import broker_of
from tests.histories.frames.proxy import FrameProxy
from tests.histories.frames.record import Record
from tests.histories.frames.rules import Rules


class Doors:
    """``record`` is who hears just now; another may take its place while clients are at work."""

    def __init__(self, record: Record | None = None) -> None:
        self.rules = Rules()
        self.record = record
        self._doors: dict[int, FrameProxy] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{door.port}" for door in self._doors.values())

    def make(self, broker: int, port: int) -> FrameProxy:
        """Return the door of a broker that listens on that port, always the same."""
        if broker not in self._doors:
            self._doors[broker] = FrameProxy(port, broker_of, broker=broker, rules=self.rules, hears=self._hear)
        return self._doors[broker]

    def listeners(self, broker: int, port: int) -> Mapping[str, str]:
        """Return the property by which a broker that listens on that port sends everybody to its door."""
        return {"advertised.listeners": f"PLAINTEXT://{HOST}:{self.make(broker, port).port}"}

    def reset(self) -> None:
        """End the clients' connections; new ones are as before."""
        for door in self._doors.values():
            door.reset()

    def _hear(self, line: Mapping[str, Any]) -> None:
        if self.record is not None:
            self.record(line)

    def close(self) -> None:
        """End all connections through them."""
        for door in self._doors.values():
            door.close()


class DooredKafka(RealKafka):
    """Real Kafka behind such doors."""

    def __init__(
        self, doors: Doors, version: str, directory: Path, *, brokers: int, options: Mapping[str, str]
    ) -> None:
        super().__init__(version, directory, brokers=brokers, options=options)
        self._doors = doors

    def _broker_options(self, broker: int) -> Mapping[str, object]:
        return {**super()._broker_options(broker), **self._doors.listeners(broker, self.ports[broker])}
