"""``kt cluster``: a whole cluster on this machine, from ZooKeeper to brokers, for tests and laptops."""

import dataclasses
from pathlib import Path
from typing import Any, Final, Literal

import click

from kafkatool.commands.shared.options import KtCommand
from kafkatool.commands.shared.output import document_text
from kafkatool.commands.shared.printable import say
from kafkatool.commands.shared.termination import StopSignals
from kafkatool.core.errors import RefusedError, UsageError

DEFAULT_DIRECTORY: Final = Path.home() / ".local" / "state" / "kafkatool" / "cluster"

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    envvar="KAFKATOOL_CLUSTER_DIR",
    help="Where the cluster keeps everything. [default: ~/.local/state/kafkatool/cluster; env KAFKATOOL_CLUSTER_DIR]",
)
output_option = click.option(
    "--output",
    "form",
    type=click.Choice(("text", "json", "yaml")),
    default="text",
    help="Form of the answer. [default: text]",
)


def parse_properties(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse ``-o key=value``, repeatable. Raises UsageError on one without ``=``."""
    options = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"-o {text!r} is not key=value, such as -o min.insync.replicas=2")
        options[key.strip()] = value.strip()
    return options


overrides_option = click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_properties,
    help="A property that wins over the file; repeatable.",
)


def complete_brokers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete ids of the cluster's brokers, whether they run or not."""
    spec = _cluster(ctx.params["directory"]).files.load()
    return [str(i) for i in (spec.ports if spec else ()) if str(i).startswith(incomplete)]


broker_argument = click.argument("broker_id", type=int, metavar="ID", shell_complete=complete_brokers)


@click.group()
def cluster() -> None:
    """Run a whole cluster on this machine.

    ZooKeeper and every broker are processes of their own on 127.0.0.1; they and their data live under --dir.
    """


@cluster.command(
    cls=KtCommand,
    examples=(
        "kt cluster up",
        "kt cluster up --brokers 5 --dir /tmp/five -o min.insync.replicas=2 -o num.io.threads=4",
        "kt cluster up --foreground",
    ),
)
@click.option("--brokers", type=click.IntRange(min=1), default=3, help="How many brokers. [default: 3]")
@click.option(
    "-o", "--option", "options", multiple=True, callback=parse_properties, metavar="KEY=VALUE",
    help="A broker property by Kafka's name; repeatable.",
)  # fmt: skip
@click.option("--zookeeper-port", type=click.IntRange(1, 65535), help="ZooKeeper's port. [default: a free one]")
@click.option("--port", type=click.IntRange(1, 65535), help="The first broker's port; the others follow it.")
@click.option(
    "--secure", "security", flag_value="sasl_ssl", default=None,
    help="With TLS, users, ACLs: SASL_SSL, and SSL for clients with a certificate; see kt cluster status --output json.",
)  # fmt: skip
@click.option("--foreground", is_flag=True, help="Stay, and end the cluster on Ctrl-C.")
@directory_option
@output_option
def up(
    brokers: int,
    options: dict[str, str],
    zookeeper_port: int | None,
    port: int | None,
    security: Literal["sasl_ssl"] | None,
    foreground: bool,
    directory: Path,
    form: str,
) -> None:
    """Start a cluster; return when all brokers are registered and answer.

    It goes on running: kt cluster down ends it. Data of an earlier run in the same directory is kept; fewer brokers than
    have partitions there are refused.
    """
    from kafkatool.broker.embedded.cluster import EmbeddedCluster

    try:
        made = EmbeddedCluster(
            brokers,
            directory=directory,
            options=options,
            zookeeper_port=zookeeper_port,
            port=port,
            security=security or "plaintext",
        )
    except RefusedError as e:  # by the flags alone
        raise UsageError(str(e)) from e
    running = made.up(owned=foreground, offered=True)
    if not foreground:
        _show(running.status(), form)
        return
    try:
        signals = StopSignals()  # first: a Ctrl-C as soon as it is offered must count
        _show(running.status(), form)
        say("running; Ctrl-C ends the cluster", err=True)
        signals.wait()
    finally:
        running.down()


@cluster.command(cls=KtCommand, examples=("kt cluster status", "kt cluster status --output json"))
@directory_option
@output_option
def status(directory: Path, form: str) -> None:
    """Show addresses, the controller and each broker's process.

    JSON: zookeeper, bootstrap, controller, directory, brokers (id, host, port, pid, log_dirs, state_change_log),
    controller_gauges (as of timestamp_ms; null where there are none), security (files and users; null: not secured).
    """
    _show(_cluster(directory).status(), form)


@cluster.command(cls=KtCommand, examples=("kt cluster down", "kt cluster down --dir /tmp/five && rm -r /tmp/five"))
@directory_option
def down(directory: Path) -> None:
    """End brokers and ZooKeeper in good order; data stays for the next kt cluster up.

    Whoever wants none of it removes the directory then: the next one begins with an empty cluster.
    """
    ended = _cluster(directory)
    if ended.is_nothing:
        say(f"no cluster in {directory}: nothing to end", err=True)
        return
    ended.down()
    say(f"the cluster in {directory} is down; its data stays there, until you remove the directory")


@cluster.command(cls=KtCommand, examples=("kt cluster kill 2",))
@broker_argument
@directory_option
def kill(broker_id: int, directory: Path) -> None:
    """End a broker's process with SIGKILL, as a crash would."""
    _cluster(directory).kill_broker(broker_id)
    say(f"broker {broker_id} is killed")


@cluster.command(cls=KtCommand, examples=("kt cluster stop 2",))
@broker_argument
@directory_option
def stop(broker_id: int, directory: Path) -> None:
    """End a broker with a controlled shutdown: its leaders move first."""
    _cluster(directory).stop_broker(broker_id)
    say(f"broker {broker_id} is stopped")


@cluster.command(cls=KtCommand, examples=("kt cluster start 2",))
@broker_argument
@directory_option
def start(broker_id: int, directory: Path) -> None:
    """Start a broker again, on the port and data it had."""
    _cluster(directory).start_broker(broker_id)
    say(f"broker {broker_id} is started, and answers")


@cluster.command(cls=KtCommand, examples=("kt cluster fill orders", "kt cluster fill orders --megabytes 500"))
@click.argument("topic")
@click.option("--megabytes", type=click.IntRange(min=1), default=20, help="How much to write. [default: 20]")
@directory_option
def fill(topic: str, megabytes: int, directory: Path) -> None:
    """Write records of 1 kB into a topic, to have something to move."""
    written = _cluster(directory).fill_topic(topic, megabytes)
    say(f"{written} records written to {topic}, and acknowledged by all replicas in sync")


def _cluster(directory: Path) -> Any:
    from kafkatool.broker.embedded.cluster import EmbeddedCluster

    return EmbeddedCluster(directory=directory)


def _show(status: Any, form: str) -> None:
    if form != "text":
        say(document_text(dataclasses.asdict(status), form))
        return
    controller = "none" if status.controller is None else f"broker {status.controller}"
    say(f"zookeeper   {status.zookeeper}\nbootstrap   {status.bootstrap}\ncontroller  {controller}")
    if status.security is not None:
        say(f"security    {status.security['protocol']}, files and users in {status.security['folder']}")
    for broker in status.brokers:
        state = f"pid {broker.pid}" if broker.pid else "not running"
        say(f"broker {broker.id:<4} {broker.host}:{broker.port}  {state}  {broker.state_change_log}")
