"""The other way to a cluster than ZooKeeper: ``--bootstrap-server`` and ``--command-config`` (ADM-1 to ADM-3, ADM-9)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from kafkatool import __version__
from kafkatool.commands.shared.credentials import (
    broker_command_config_option,
    client_id_of,
    client_properties,
    command_config,
)
from kafkatool.commands.shared.local_cluster import local_bootstrap, local_zookeeper
from kafkatool.commands.shared.output import CURRENT_OUTPUT, Output
from kafkatool.commands.shared.settings import SettingOption
from kafkatool.core.client.addresses import Address, parse_addresses
from kafkatool.core.client.settings import ClientSettings, settings_of
from kafkatool.core.collecting import collected_rarely
from kafkatool.core.errors import UsageError

if TYPE_CHECKING:
    from kafkatool.core.client.cluster import ClusterClient

CONTROLLERS: Final = "bootstrap_controller"
EITHER: Final = "Please specify either --bootstrap-server or --bootstrap-controller"
ONLY_ONE: Final = "Only one of --bootstrap-server or --zookeeper must be specified"
PARAMETER: Final = "bootstrap_server"
NAMED_ZOOKEEPER: Final = "kafkatool.named_zookeeper"
"""In a context's ``meta``: the address that another flag than --zookeeper gives, and that flag."""

bootstrap_option = click.option(
    "--bootstrap-server",
    metavar="HOST:PORT[,HOST:PORT…]",
    cls=SettingOption,
    help="Brokers to ask instead of ZooKeeper, of any Kafka from 0.10 to 4.x. [env KAFKATOOL_BOOTSTRAP_SERVER]",
)
only_bootstrap_option = click.option(
    "--bootstrap-server",
    metavar="HOST:PORT[,HOST:PORT…]",
    cls=SettingOption,
    help="Brokers to ask. [env KAFKATOOL_BOOTSTRAP_SERVER]",
)
bootstrap_controller_option = click.option(
    "--bootstrap-controller",
    metavar="HOST:PORT[,HOST:PORT…]",
    help="Controllers to ask, of Kafka 3.7 and later without ZooKeeper: --cancel and --list, even with no broker up.",
)
command_config_option = broker_command_config_option
"""``--command-config``, kept with the run."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Where the brokers are, or the ``controllers``, and how they are spoken to. ``text`` is what was typed."""

    text: str
    addresses: tuple[Address, ...]
    settings: ClientSettings
    command_config: Path | None
    controllers: bool = False

    @property
    def flag(self) -> str:
        """Return the flag that names them."""
        return _flag_of(controllers=self.controllers)


def choose_way(ctx: click.Context) -> None:
    """Leave one way to the cluster in the parameters: ``zookeeper`` or ``bootstrap``, the other is None.

    A flag on the command line silences the other one's setting; without any the only cluster of this machine serves.
    Controllers, where a command takes them, are named on the command line alone. Raises UsageError: both, or none.
    """
    text = ctx.params.pop(PARAMETER)
    config = ctx.params.pop("command_config", None) or command_config()
    controllers = ctx.params.pop(CONTROLLERS, None)
    if controllers is not None:
        if is_typed(PARAMETER, ctx):
            raise UsageError(EITHER)
        if is_typed("zookeeper", ctx) or NAMED_ZOOKEEPER in ctx.meta:
            raise UsageError(ONLY_ONE.replace("--bootstrap-server", "--bootstrap-controller"))
        ctx.params["zookeeper"] = None
        ctx.params["bootstrap"] = bootstrap_of(controllers, config, ctx.command_path, controllers=True)
        return
    if "zookeeper" not in ctx.params:  # a command that asks brokers only
        if text is None and not ctx.resilient_parsing:
            text = local_bootstrap()
        ctx.params["bootstrap"] = None if text is None else bootstrap_of(text, config, ctx.command_path)
        return
    zookeeper = ctx.params["zookeeper"]
    if text is not None and zookeeper is not None:
        typed = is_typed(PARAMETER, ctx)
        if typed == (is_typed("zookeeper", ctx) or NAMED_ZOOKEEPER in ctx.meta):
            raise UsageError(ONLY_ONE)
        text, zookeeper = (text, None) if typed else (None, zookeeper)
    if text is None and zookeeper is None and not ctx.resilient_parsing:
        zookeeper = local_zookeeper(or_brokers=True)
    ctx.params["zookeeper"] = zookeeper
    ctx.params["bootstrap"] = None if text is None else bootstrap_of(text, config, ctx.command_path)


def is_typed(parameter: str, ctx: click.Context | None = None) -> bool:
    """Tell whether a flag of this command, by its parameter's name, was given on the command line."""
    return (ctx or click.get_current_context()).get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def bootstrap_of(text: str, config: Path | None, command: str, *, controllers: bool = False) -> Bootstrap:
    """Parse addresses and read the client's properties. Raises UsageError."""
    settings = ClientSettings(client_id=client_id_of(command), software_version=__version__)
    if config is not None:
        properties, security = client_properties(config)
        settings = settings_of(properties, replace(settings, security=security))
    addresses = parse_addresses(text, _flag_of(controllers=controllers))
    return Bootstrap(text, addresses, settings, config, controllers)


def _flag_of(*, controllers: bool) -> str:
    return "--bootstrap-controller" if controllers else "--bootstrap-server"


@contextmanager
def connect_brokers(
    bootstrap: Bootstrap, *, cluster_id: str | None = None, whole_timeout_ms: int | None = None
) -> Iterator["ClusterClient"]:
    """Connect for one command, to the brokers or to the controllers, whose output tells what they left out.

    Raises BrokerUnreachableError, and RefusedError where ``cluster_id`` is another's.
    """
    from kafkatool.core.client.cluster import ClusterClient

    settings = bootstrap.settings
    if whole_timeout_ms is not None:
        settings = replace(settings, whole_timeout_ms=whole_timeout_ms)
    context = click.get_current_context(silent=True)
    out: Output | None = context.meta.get(CURRENT_OUTPUT) if context is not None else None
    unseen = out.unseen if out is not None else None
    kind = ClusterClient
    if bootstrap.controllers:
        from kafkatool.core.client.controllers import ControllerClient

        kind = ControllerClient
    with (
        collected_rarely(),
        kind(bootstrap.addresses, settings, cluster_id=cluster_id, unseen=unseen) as client,
    ):
        yield client
