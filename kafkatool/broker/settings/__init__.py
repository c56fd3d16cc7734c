"""The settings of a broker: server.properties, protocol versions, listeners, and configs that change while it runs.

Doors: ``config`` (server.properties, checked), ``protocol_versions``, ``dynamic`` and ``overrides`` (configs in
ZooKeeper), ``listeners`` and ``inter_broker`` (what each listener is told, and how this broker logs in),
``description`` (all of it, as administrators see it). No config is changed here.
"""

__all__ = ["config", "description", "dynamic", "inter_broker", "listeners", "overrides", "protocol_versions"]
