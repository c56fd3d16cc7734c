"""All APIs whose messages the protocol package has, by key: a broker knows those it serves, a client the one it asks."""

import pkgutil
from importlib import import_module

from kafkatool.core.protocol import messages
from kafkatool.core.protocol.codec.schema import Api

_NAMES = [module.name for module in pkgutil.iter_modules(messages.__path__)]
_MODULES = [import_module(f"{messages.__name__}.{name}") for name in _NAMES]
APIS: dict[int, Api] = {m.API.key: m.API for m in _MODULES if hasattr(m, "API")}

ONLY_ASKED = frozenset({55, 75})
"""Keys that kt asks of Kafka's brokers and ours do not serve."""
