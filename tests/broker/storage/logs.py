"""Logs in temporary directories, with services that do at once what a broker does later."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.storage.log.log import Log
from kafkatool.broker.storage.log.log_opening import open_log
from kafkatool.broker.storage.log.log_reader import LogRead
from kafkatool.broker.storage.log.log_state import LogServices
from kafkatool.broker.storage.log_config import LogConfig
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.protocol.codec.file_region import FileRegion

PARTITION = TopicPartition("t", 0)


def broker_config(**properties: str) -> BrokerConfig:
    """Take defaults, and properties given with ``_`` for ``.``."""
    given = {name.replace("_", "."): text for name, text in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "127.0.0.1:1", **given})


def log_config(**overrides: str) -> LogConfig:
    """Take defaults, and topic configs given with ``_`` for ``.``."""
    return LogConfig.from_broker(broker_config(), {name.replace("_", "."): text for name, text in overrides.items()})


@dataclass
class Later:
    """Collects what a log wants done in the background, and what it reports."""

    jobs: list[Callable[[], object]] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)
    lowered: int = 0
    checkpointed: int = 0

    def run(self) -> None:
        """Do all of it now."""
        while self.jobs:
            self.jobs.pop(0)()

    def services(self) -> LogServices:
        """Make the services to give to a log."""

        def lower() -> None:
            self.lowered += 1

        def checkpoint() -> None:
            self.checkpointed += 1

        return LogServices(
            lambda job, delay_ms: self.jobs.append(job), self.errors.append, lower, lambda: None, checkpoint
        )


_OF_OPENING = ("recovery_point", "log_start_offset", "may_lack_data")


def make_log(directory: Path, later: Later | None = None, *, clean: bool = False, **options: Any) -> Log:
    """Open or create a log; names with a topic config are overrides, the rest goes to ``open_log``."""
    opening = {name: options.pop(name) for name in _OF_OPENING if name in options}
    directory.mkdir(exist_ok=True)
    services = (later or Later()).services()
    return open_log(directory, PARTITION, log_config(**options), services, clean=clean, **opening)


def content(read: LogRead) -> bytes:
    """Return the bytes of a read."""
    return read.records.read() if isinstance(read.records, FileRegion) else read.records


def everything(log: Log) -> bytes:
    """Return all bytes of the log from its start to its end."""
    data, offset = b"", log.log_start_offset
    for segment in log.segments.from_offset(offset):
        data += segment.region(0, segment.size_bytes).read()
    return data
