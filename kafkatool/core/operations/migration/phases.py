"""How far a migration from ZooKeeper to KRaft is, and what the next step is (ADM-100, ADM-103). Pure.

Told by who holds /controller, by /migration, by which brokers are registered in ZooKeeper, and by the controllers. Where
those are not asked, a migration that is finished cannot be told from one whose last step is left, nor one that is on its
way back from one under way. On its way back it is only where each controller's address refuses the connection: one that
answers otherwise, or not at all, may be that of a controller that is alive.
"""

import enum
from typing import NamedTuple

from kafkatool.core.operations.migration.reading import Evidence


class Phase(enum.StrEnum):
    """The phases, in the order in which they are passed."""

    NONE = "none"
    WAITING = "waiting"
    LOADING = "loading"
    HYBRID = "hybrid"
    DUAL_WRITE = "dual_write"
    DUAL_WRITE_OR_FINALIZED = "dual_write_or_finalized"
    FINALIZED = "finalized"
    ROLLING_BACK = "rolling_back"
    ROLLED_BACK = "rolled_back"
    INCONSISTENT = "inconsistent"


class Steps(NamedTuple):
    """The next step of a phase, and how to go back from there."""

    forward: str
    back: str


_FINALIZE = "finalize: restart the controllers without zookeeper.metadata.migration.enable and zookeeper.connect"
_BACK_FROM_DUAL_WRITE = (
    "restart the brokers as ZooKeeper brokers with the migration's settings; stop the controllers; delete /controller and "
    "/migration; restart each broker without them"
)
STEPS = {
    Phase.NONE: Steps(
        "start a quorum of KRaft controllers, formatted with this cluster's id, with "
        "zookeeper.metadata.migration.enable=true and zookeeper.connect; then restart each broker with "
        "zookeeper.metadata.migration.enable=true, "
        "controller.quorum.voters (or controller.quorum.bootstrap.servers) and controller.listener.names",
        "nothing has begun",
    ),
    Phase.WAITING: Steps(
        "restart each broker that has not zookeeper.metadata.migration.enable=true yet; the load begins when all are ready",
        "stop the controllers, delete /migration, restart the brokers without the migration's settings",
    ),
    Phase.LOADING: Steps(
        "wait: the controller copies ZooKeeper's metadata",
        "stop the controllers, delete /controller and /migration, restart the brokers without the migration's settings",
    ),
    Phase.HYBRID: Steps(
        "restart the brokers one by one as KRaft brokers: process.roles=broker, node.id in place of broker.id, without "
        "zookeeper.connect, zookeeper.metadata.migration.enable and inter.broker.protocol.version",
        "restart the KRaft brokers as ZooKeeper brokers; stop the controllers; delete /controller and /migration; restart "
        "each broker without the migration's settings",
    ),
    Phase.DUAL_WRITE: Steps(_FINALIZE, _BACK_FROM_DUAL_WRITE),
    Phase.DUAL_WRITE_OR_FINALIZED: Steps(
        f"{_FINALIZE}; if that is done, ZooKeeper can be switched off",
        f"before finalizing: {_BACK_FROM_DUAL_WRITE}. After finalizing there is no way back",
    ),
    Phase.FINALIZED: Steps("switch ZooKeeper off", "none: what has changed since is not in ZooKeeper"),
    Phase.ROLLING_BACK: Steps(
        "see that every controller process is stopped; then delete /controller and /migration, so that a broker becomes "
        "controller; then restart each broker without the migration's settings",
        "start the controllers again, and the migration goes on",
    ),
    Phase.ROLLED_BACK: Steps(
        "delete /migration before the next attempt, which would skip the load",
        "the cluster is back on ZooKeeper",
    ),
    Phase.INCONSISTENT: Steps("find out what happened before any further step", "not told: no phase fits"),
}


def phase_of(e: Evidence) -> Phase:
    """Return the first phase that fits; INCONSISTENT: none does, or /migration is of a later Kafka."""
    if e.migration is not None and e.migration.unknown:
        return Phase.INCONSISTENT
    if e.finalized:
        return Phase.FINALIZED
    loaded = e.migration is not None and e.migration.metadata_offset > 0
    if e.controller is not None and e.controller.kraft_epoch is not None:
        if e.migration is None:
            return Phase.INCONSISTENT
        if not loaded:
            return Phase.LOADING if not e.kraft else Phase.INCONSISTENT
        if e.view.brokers and not e.kraft and e.controllers is not None and e.controllers.refused:
            return Phase.ROLLING_BACK
        if e.view.brokers:
            return Phase.HYBRID
        migrating = e.controllers is not None and e.controllers.migrate
        return Phase.DUAL_WRITE if migrating else Phase.DUAL_WRITE_OR_FINALIZED
    if e.kraft:
        return Phase.INCONSISTENT
    if e.migration is None:
        return Phase.NONE
    if loaded:
        return Phase.ROLLED_BACK
    return Phase.WAITING if e.controller is not None else Phase.INCONSISTENT


def told(e: Evidence) -> str:
    """Write the evidence that the phase was told by."""
    if e.controller is None:
        controller = "/controller: none"
    elif e.controller.kraft_epoch is None:
        controller = f"/controller: broker {e.controller.broker_id}"
    else:
        controller = f"/controller: KRaft controller {e.controller.broker_id}, epoch {e.controller.kraft_epoch}"
    migration = "absent"
    if e.migration is not None:
        migration = f"offset {e.migration.metadata_offset}"
        migration += f", unknown keys {', '.join(e.migration.unknown)}" if e.migration.unknown else ""
    here, there = len(e.view.brokers), len(e.kraft)
    seen = f"{controller}; /migration: {migration}; {here} brokers in /brokers/ids, {there} elsewhere"
    c = e.controllers
    if c is None:
        return seen
    if c.unreachable:
        return f"{seen}; {c.unreachable}"
    ready = [controller for controller, answer in c.told.items() if answer.migrates]
    return f"{seen}; {len(ready)} of {len(c.told)} controllers set to migrate"
