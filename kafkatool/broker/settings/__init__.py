"""The settings of a broker: server.properties, protocol versions, listeners, and configs that change while it runs.

Doors: ``config`` (server.properties, checked) and ``properties`` (their text), ``protocol_versions``, ``dynamic`` and
``overrides`` (configs in ZooKeeper), ``description`` (all of it, as administrators see it). No config is changed here.
"""

__all__ = ["config", "description", "dynamic", "overrides", "properties", "protocol_versions"]
