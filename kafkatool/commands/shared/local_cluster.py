"""The cluster of a command that was told none: the only one that ``kt cluster up`` runs on this machine."""

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkatool.commands.shared.printable import say
from kafkatool.commands.shared.settings import LOCAL_FILE
from kafkatool.core.errors import UsageError

if TYPE_CHECKING:
    from kafkatool.broker.embedded.running import RunningCluster

WAYS: Final = (
    f'give --zookeeper HOST:PORT, set KAFKATOOL_ZOOKEEPER, write zookeeper = "HOST:PORT" into ./{LOCAL_FILE}, or start a '
    "cluster here: kt cluster up"
)

BROKER_WAYS: Final = (
    'give --bootstrap-server HOST:PORT, set KAFKATOOL_BOOTSTRAP_SERVER, write bootstrap-server = "HOST:PORT" into '
    f"./{LOCAL_FILE}, or start a cluster here: kt cluster up"
)

EITHER_WAYS: Final = (
    "give --zookeeper HOST:PORT or --bootstrap-server HOST:PORT, set KAFKATOOL_ZOOKEEPER or KAFKATOOL_BOOTSTRAP_SERVER, "
    f'write zookeeper = "HOST:PORT" or bootstrap-server = "HOST:PORT" into ./{LOCAL_FILE}, '
    "or start a cluster here: kt cluster up"
)


def only_local_zookeeper() -> str | None:
    """Return its ZooKeeper without a word, for the completion of a line; None where none runs, or several do."""
    from kafkatool.broker.embedded.running import running_clusters

    running = list(running_clusters().values())
    return running[0].zookeeper if len(running) == 1 else None


def local_zookeeper(*, or_brokers: bool = False) -> str:
    """Return its ZooKeeper, and say so on stderr. Raises UsageError where none runs, or several do.

    ``or_brokers``: the command could have been told brokers as well.
    """
    if or_brokers:
        return _only("cluster", "--zookeeper", EITHER_WAYS, attrgetter("zookeeper"))
    return _only("ZooKeeper", "--zookeeper", WAYS, attrgetter("zookeeper"))


def local_bootstrap() -> str:
    """Return its brokers, and say so on stderr. Raises UsageError where none runs, or several do."""
    return _only("broker", "--bootstrap-server", BROKER_WAYS, attrgetter("bootstrap"))


def _only(wanted: str, flag: str, ways: str, address_of: Callable[["RunningCluster"], str]) -> str:
    from kafkatool.broker.embedded.running import running_clusters

    running = running_clusters()
    if not running:
        raise UsageError(f"no {wanted} is named, and no cluster of kt's runs here: {ways}")
    addresses = {directory: address_of(cluster) for directory, cluster in running.items()}
    if len(running) > 1:
        shown = ", ".join(f"{flag} {address} ({_short(directory)})" for directory, address in sorted(addresses.items()))
        raise UsageError(f"no {wanted} is named, and {len(running)} clusters run here: name one of {shown}")
    ((directory, address),) = addresses.items()
    say(f"kt: on the cluster of this machine, {address} ({_short(directory)})", err=True)
    return address


def _short(directory: Path) -> str:
    home = Path.home()
    return f"~/{directory.relative_to(home)}" if directory.is_relative_to(home) else str(directory)
