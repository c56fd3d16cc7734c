"""``kt controller``: a controller without a broker, as a process in the foreground."""

import logging
import signal
import threading
from pathlib import Path
from typing import Final

import click

from kafkatool.commands.servers.cluster import overrides_option
from kafkatool.commands.shared.credentials import zookeeper_security
from kafkatool.commands.shared.options import KtCommand, zookeeper_option
from kafkatool.commands.shared.server_log import log_controller_to, log_to_stderr
from kafkatool.commands.shared.termination import StopSignals
from kafkatool.core.errors import StartGivenUpError

log = logging.getLogger(__name__)

DEFAULT_LOG_DIR: Final = Path.home() / ".local" / "state" / "kafkatool" / "controller"


@click.group()
def controller() -> None:
    """Rule a cluster of Kafka brokers from outside, without being a broker."""


@controller.command(
    cls=KtCommand,
    examples=(
        "kt controller start --zookeeper zk1:2181/kafka --config server.properties",
        "kt controller start --zookeeper zk1:2181/kafka --take-over -o delete.topic.enable=true",
    ),
    notes=(
        "Works with brokers of Kafka 0.10.2 to 2.8 whose inter.broker.protocol.version is 2.6 or older. It waits until "
        "/controller is free, and a broker may be faster; with --take-over it takes the place of whoever rules, in one "
        "transaction. SIGTERM and Ctrl-C give the place back, and a broker goes on with what is under way.",
        "Tell it what the brokers are told (--config, -o): unclean.leader.election.enable, delete.topic.enable, "
        "auto.leader.rebalance.enable, inter.broker.listener.name and the like are the controller's to follow. The first "
        "of them is asked of the brokers if it is not given; where none can say (before 0.11), or they differ, it must be.",
        "While it rules, clients find no controller among the brokers: topics are made, altered and deleted through "
        "ZooKeeper (kt, or Kafka's tools with --zookeeper), and a broker that stops does not move its leaders first.",
    ),
)
@zookeeper_option
@click.option(
    "--broker-id",
    type=click.IntRange(0, 2**31 - 1),
    help="Its id in /controller; one that no broker has. [default: one that no broker ever gets]",
)
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A broker's server.properties, for the settings below; broker.id in it is not used.",
)
@overrides_option
@click.option("--take-over", is_flag=True, help="Take the place of the controller that rules now.")
@click.option(
    "--log-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_LOG_DIR,
    help="For state-change.log and controller.log. [default: ~/.local/state/kafkatool/controller]",
)
def start(
    zookeeper: str, broker_id: int | None, path: Path | None, overrides: dict[str, str], take_over: bool, log_dir: Path
) -> None:
    """Start a controller in the foreground."""
    from kafkatool.broker.controller.standalone import StandaloneController, controller_config
    from kafkatool.broker.runtime.gc_pause import allow_gc_pauses
    from kafkatool.core.java_properties import load_properties

    properties = {**(load_properties(path) if path else {}), "kt.log.dir": str(log_dir), **overrides}
    config = controller_config({**properties, "zookeeper.connect": zookeeper})
    log_to_stderr()
    allow_gc_pauses()
    log_controller_to(config.own_log_dir / "controller.log")
    server = StandaloneController(config, broker_id=broker_id, zookeeper_login=zookeeper_security())
    stopping = threading.Event()

    def stop(told: signal.Signals) -> None:
        log.info("stopping: %s", told.name)
        stopping.set()
        server.give_up_start()

    StopSignals().listen(stop)
    try:
        server.start(take_over=take_over)
        log.info("controller %d runs; SIGTERM or Ctrl-C ends it", server.broker_id)
        stopping.wait()
    except StartGivenUpError as e:
        log.info("%s", e)  # a place not taken yet is not taken
    finally:
        server.stop()
