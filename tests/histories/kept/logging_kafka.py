"""Real Kafka whose brokers write their state-change logs, as their own configuration has them do: the control of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.compat.real_kafka import RealKafka
from tests.histories.frames.doors import DooredKafka

_LOGGING: Final = """\
log4j.rootLogger=WARN, E
log4j.logger.state.change.logger=TRACE, S
log4j.additivity.state.change.logger=false
log4j.appender.E=org.apache.log4j.ConsoleAppender
log4j.appender.E.Target=System.err
log4j.appender.E.layout=org.apache.log4j.PatternLayout
log4j.appender.E.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.appender.S=org.apache.log4j.FileAppender
log4j.appender.S.File={file}
log4j.appender.S.layout=org.apache.log4j.PatternLayout
log4j.appender.S.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class LoggingKafka(RealKafka):
    """Each broker's ``broker-N-logs`` has its state-change log."""

    def logs(self, broker: int) -> Path:
        return self._directory / f"broker-{broker}-logs"

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        if name.startswith("broker-"):
            own = self.logs(int(name.removeprefix("broker-")))
            own.mkdir(exist_ok=True)
            (own / "log4j.properties").write_text(_LOGGING.format(file=own / "state-change.log"))
            ours = f"-Dlog4j.configuration=file:{own / 'log4j.properties'}"
            command = [ours if part.startswith("-Dlog4j.configuration=") else part for part in command]
        super()._spawn(name, command)


class LoggingDooredKafka(LoggingKafka, DooredKafka):
    """The same behind doors that know frames."""
