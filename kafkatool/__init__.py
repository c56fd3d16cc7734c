"""kafkatool: admin command line, embeddable broker and controller, and log analysis for Kafka.

>>> from kafkatool import EmbeddedCluster, Broker, Controller

``EmbeddedCluster``: ZooKeeper and brokers as processes of this machine, for tests. ``Broker``: one inside this process.
``Controller``: rules a cluster of Kafka brokers without being one. They are imported when they are first named: ``kt``,
which needs none of them, imports this package at each start.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkatool.broker.controller.standalone import StandaloneController
    from kafkatool.broker.embedded.cluster import EmbeddedCluster as EmbeddedCluster
    from kafkatool.broker.server import Broker as Broker

    Controller = StandaloneController

__version__ = "0.2.0"

_PUBLIC = {
    "Broker": ("kafkatool.broker.server", "Broker"),
    "Controller": ("kafkatool.broker.controller.standalone", "StandaloneController"),
    "EmbeddedCluster": ("kafkatool.broker.embedded.cluster", "EmbeddedCluster"),
}


if not TYPE_CHECKING:  # a checker would take any name for a public one

    def __getattr__(name: str) -> object:
        """Import a public name when it is asked for."""
        if name not in _PUBLIC:
            raise AttributeError(f"module 'kafkatool' has no attribute {name!r}; public are {', '.join(_PUBLIC)}")
        module, attribute = _PUBLIC[name]
        found: object = getattr(import_module(module), attribute)
        globals()[name] = found  # the next time it is there
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
