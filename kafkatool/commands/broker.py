"""``kt broker``: one broker as a process in the foreground."""

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from kafkatool.commands.cluster import parse_properties
from kafkatool.commands.options import KtCommand
from kafkatool.core.errors import KafkatoolError

log = logging.getLogger(__name__)

_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"  # Kafka's log4j layout
_DATE = "%Y-%m-%d %H:%M:%S"


@click.group()
def broker() -> None:
    """Run one broker from a server.properties file."""


@broker.command(
    cls=KtCommand,
    examples=(
        "kt broker start --config server.properties",
        "kt broker start --config server.properties -o broker.id=2 -o listeners=PLAINTEXT://:9093",
    ),
    notes=(
        "Runs until SIGTERM or SIGINT, then moves its leaders away and stops; a second signal waits no longer for "
        "the controller. The server's log goes to stderr, state-change.log and controller.log to kt.log.dir "
        "(default: `logs` beside the first of log.dirs).",
    ),
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The broker's server.properties; Kafka's names, defaults and units.",
)
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_properties,
    help="A property that wins over the file; repeatable.",
)
def start(path: Path, overrides: dict[str, str]) -> None:
    """Start a broker in the foreground."""
    from kafkatool.broker.config import BrokerConfig
    from kafkatool.broker.file_limit import raise_file_limit
    from kafkatool.broker.server import Broker

    _log_to_stderr()
    raise_file_limit()
    config = BrokerConfig.load(path, overrides)
    _log_controller_to(config.own_log_dir / "controller.log")
    server = Broker(config)
    stopping = threading.Event()
    told, tell = os.pipe()
    started = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not started:
            raise KeyboardInterrupt  # the start is undone, whatever it waits for
        # Nothing here may take a lock: this runs between any two steps of the main thread, a second signal even
        # between two steps of this function.
        os.write(tell, bytes((number,)))

    def listen() -> None:
        number = os.read(told, 1)[0]
        log.info("stopping: %s", signal.Signals(number).name)
        stopping.set()
        os.read(told, 1)
        server.hurry()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    server.start()
    started = True
    threading.Thread(target=listen, name="signals", daemon=True).start()
    server.on_failure(stopping.set)
    stopping.wait()
    server.stop(controlled=not server.failed.is_set())
    if server.failed.is_set():
        raise KafkatoolError(f"broker {server.broker_id} cannot go on; see its log")


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
    root = logging.getLogger("kafkatool")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def _log_controller_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(_FORMAT, _DATE))
    logging.getLogger("kafkatool.broker.controller").addHandler(handler)
