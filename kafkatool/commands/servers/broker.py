"""``kt broker``: one broker as a process in the foreground."""

import logging
import signal
import threading
from pathlib import Path

import click

from kafkatool.commands.servers.cluster import overrides_option
from kafkatool.commands.shared.credentials import zookeeper_security
from kafkatool.commands.shared.options import KtCommand
from kafkatool.commands.shared.server_log import log_controller_to, log_refusals_to, log_to_stderr
from kafkatool.commands.shared.termination import StopSignals
from kafkatool.core.errors import KafkatoolError, StartGivenUpError

log = logging.getLogger(__name__)


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
        "the controller. With a TLS listener SIGHUP has it read its keystores and truststores again, all or none; who is "
        "connected stays. The server's log goes to stderr; state-change.log, controller.log and authorizer.log to "
        "kt.log.dir (default: `logs` beside the first of log.dirs). The latter two are rolled at 100 MB, and ten files of "
        "each are kept; state-change.log is rolled by the hour, and nothing of it is ever deleted.",
    ),
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="The broker's server.properties; Kafka's names, defaults and units.",
)
@overrides_option
def start(path: Path, overrides: dict[str, str]) -> None:
    """Start a broker in the foreground."""
    from kafkatool.broker.runtime.gc_pause import allow_gc_pauses, gc_paused

    allow_gc_pauses()
    with gc_paused():  # what is imported stays: looking through it again and again takes a tenth of the time
        from kafkatool.broker.runtime.file_limit import raise_file_limit
        from kafkatool.broker.server import Broker
        from kafkatool.broker.settings.config import BrokerConfig

    log_to_stderr()
    raise_file_limit()
    config = BrokerConfig.load(path, overrides)
    log_controller_to(config.own_log_dir / "controller.log")
    if config.authorizer_class_name:
        log_refusals_to(config.own_log_dir / "authorizer.log")
    server = Broker(config, zookeeper_login=zookeeper_security())
    stopping = threading.Event()

    def stop(told: signal.Signals) -> None:
        log.info("stopping: %s", told.name)
        stopping.set()
        server.give_up_start()

    def read_stores_again() -> None:
        try:
            server.read_stores_again()
            log.info("keystores and truststores are read again, for new connections")
        except KafkatoolError as e:
            log.error("keystores and truststores stay as they were: %s", e)

    StopSignals().listen(
        stop,
        lambda _: server.hurry(),
        on_hangup=read_stores_again if any(e.protocol.endswith("SSL") for e in config.listeners) else None,
    )
    try:
        server.start()
        server.on_failure(stopping.set)
        stopping.wait()
    except StartGivenUpError as e:
        log.info("%s", e)
    server.stop(controlled=not server.failed.is_set())
    if server.failed.is_set():
        raise KafkatoolError(f"broker {server.broker_id} cannot go on; see its log")
