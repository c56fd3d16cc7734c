"""What must hold before, and during, a migration from ZooKeeper to KRaft: each condition, its evidence, its remedy. Pure.

Source: ADM-101, which names Kafka's issues; a condition that could not be read is unknown, never ok.
"""

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafkatool.core.model.topic_names import fold, is_legal
from kafkatool.core.model.values import first_of, in_number, join_ids
from kafkatool.core.operations.brokers.releases import LEADER_AND_ISR, release_number, release_of
from kafkatool.core.operations.migration.controllers import Controllers
from kafkatool.core.operations.migration.metadata_versions import level_of, named
from kafkatool.core.operations.migration.phases import Phase, phase_of
from kafkatool.core.operations.migration.reading import Evidence
from kafkatool.core.zookeeper.znodes import AdminZnode, ConfigZnode

FIRST_RELEASE: Final = (3, 4)
LAST_RELEASE: Final = (3, 9)
JBOD_RELEASE: Final = (3, 7)
SHOWN: Final = 5
AUTHORIZERS: Final = (
    "",
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
DROPPED: Final = ("log.message.format.version", "message.format.version", "message.downconversion.enable")
SECRETS: Final = ("password", "jaas", "keystore.key")
WITHOUT_ZOOKEEPER: Final = frozenset({Phase.DUAL_WRITE, Phase.DUAL_WRITE_OR_FINALIZED})
DURING: Final = WITHOUT_ZOOKEEPER | {Phase.HYBRID, Phase.ROLLING_BACK}
BEFORE_LOAD: Final = frozenset({Phase.NONE, Phase.WAITING, Phase.LOADING})
STILL_JUDGED: Final = frozenset({"phase", "software", "jbod", "controllers"})
"""What can be judged once ZooKeeper counts no more."""
LATE_S: Final = 10.0  # a voter that is further behind has not caught up
JBOD_PROTOCOL: Final = "3.7-IV2"


class Severity(enum.StrEnum):
    """The outcome of a condition. UNKNOWN counts as BLOCKER where the condition could be one."""

    OK = "ok"
    NOTE = "note"
    UNKNOWN = "unknown"
    WARNING = "warning"
    BLOCKER = "blocker"


class Finding(NamedTuple):
    """One thing found: how bad, where it was read and what was, and what to do."""

    severity: Severity
    evidence: str
    remedy: str


class Row(NamedTuple):
    """The outcome of one condition. ``blocks``: it may be a blocker, so that it must be known."""

    id: str
    severity: Severity
    evidence: str
    remedy: str
    blocks: bool


_Condition = Callable[[Evidence, Phase], Iterator[Finding]]


def check(e: Evidence) -> list[Row]:
    """Return every condition's outcome, in their order."""
    phase = phase_of(e)
    return [_row(name, condition, e, phase) for name, condition in CONDITIONS.items()]


def blocked(rows: Iterable[Row], *, strict: bool) -> bool:
    """Tell whether the next step must not be taken; ``strict``: nor with warnings."""
    stops = {Severity.BLOCKER, Severity.WARNING} if strict else {Severity.BLOCKER}
    return any(row.severity in stops or (row.severity is Severity.UNKNOWN and row.blocks) for row in rows)


def _row(name: str, condition: _Condition, e: Evidence, phase: Phase) -> Row:
    if phase is Phase.FINALIZED and name not in STILL_JUDGED:
        return Row(name, Severity.NOTE, "not looked at: ZooKeeper counts no more", "", blocks=False)
    order = list(Severity)
    found = sorted(condition(e, phase), key=lambda f: -order.index(f.severity))
    if not found:
        return Row(name, Severity.OK, "", "", name in BLOCKERS)
    evidence = "; ".join(finding.evidence for finding in found)
    remedy = "; ".join(dict.fromkeys(finding.remedy for finding in found if finding.remedy))
    return Row(name, found[0].severity, evidence, remedy, name in BLOCKERS)


# --- the conditions ---------------------------------------------------------------------------------------------


def _phase(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if phase is Phase.INCONSISTENT:
        yield Finding(Severity.BLOCKER, "no phase fits", "find out what happened before any further step")


def _ibp(e: Evidence, phase: Phase) -> Iterator[Finding]:
    told = {b: v for b, v in e.setting("inter.broker.protocol.version").items() if b in e.view.brokers}
    yield from _untold(e, told, "inter.broker.protocol.version")
    if len(set(told.values())) > 1:
        shown = ", ".join(f"broker {b}: {v}" for b, v in told.items())
        yield Finding(
            Severity.BLOCKER, shown, "set the same inter.broker.protocol.version on all brokers, and restart them"
        )
    for value in sorted(set(told.values())):
        if release_number(value) < FIRST_RELEASE:
            yield Finding(
                Severity.BLOCKER, value, "raise inter.broker.protocol.version to that of the brokers' release"
            )
        elif release_number(value) < LAST_RELEASE:
            yield Finding(
                Severity.WARNING, value, "inter.broker.protocol.version=3.9, of the last release with ZooKeeper"
            )


def _software(e: Evidence, phase: Phase) -> Iterator[Finding]:
    releases = {b: release_of(a.served) for b, a in sorted(e.answers.told.items())}
    yield from _untold(e, releases, "ApiVersions", of=set(e.view.brokers) | set(e.brokers))
    for broker, release in releases.items():
        if release.number < FIRST_RELEASE or release.like:
            yield Finding(Severity.BLOCKER, f"broker {broker}: {release}", "upgrade the brokers to 3.9 first")
        elif release.number < LAST_RELEASE:
            yield Finding(Severity.WARNING, f"broker {broker}: {release}", "upgrade the brokers to 3.9 first")
    if len({str(r) for r in releases.values()}) > 1:
        yield Finding(
            Severity.WARNING, f"releases {', '.join(sorted({str(r) for r in releases.values()}))}", "end the upgrade"
        )


def _jbod(e: Evidence, phase: Phase) -> Iterator[Finding]:
    yield from _silent(e, "log directories")
    for broker, answer in sorted(e.answers.told.items()):
        dirs = answer.log_dirs
        if dirs is None:
            yield Finding(Severity.UNKNOWN, f"broker {broker} does not tell its log directories", "")
            continue
        if offline := [d.path for d in dirs if d.offline]:
            yield Finding(
                Severity.WARNING,
                f"broker {broker}: offline {', '.join(offline)}",
                "repair the disk, or take it out of log.dirs",
            )
        ibp = (answer.configs or {}).get("inter.broker.protocol.version")
        older = release_of(answer.served).number < JBOD_RELEASE or (ibp and _is_below(ibp, JBOD_PROTOCOL))
        if len(dirs) > 1 and older:
            yield Finding(
                Severity.BLOCKER,
                f"broker {broker}: {len(dirs)} log directories before 3.7",
                "upgrade to 3.7 or later (3.7-IV2)",
            )


def _broker_id(e: Evidence, phase: Phase) -> Iterator[Finding]:
    reserved = {b: int(v) for b, v in e.setting("reserved.broker.max.id").items() if v.isdecimal()}
    generated = [b for b in sorted(e.view.brokers) if b > reserved.get(b, 1000)] if e.generated_ids else []
    if generated:
        yield Finding(
            Severity.BLOCKER,
            f"/brokers/seqid was used, and brokers {join_ids(generated, ', ')} have generated ids",
            "write broker.id into each one's server.properties",
        )
    known = {*e.controllers.told, *e.controllers.silent} if e.controllers is not None else set()
    if e.controller is not None and e.controller.kraft_epoch is not None:
        known.add(e.controller.broker_id)
    if shared := sorted(known.intersection({*e.view.brokers, *e.brokers})):
        yield Finding(
            Severity.BLOCKER,
            f"{in_number(len(shared), 'controller has', 'controllers have')} a broker's id: {join_ids(shared, ', ')}",
            "give controllers ids of their own",
        )


def _reassignment(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if moving := sorted(e.view.moving):
        yield Finding(
            Severity.BLOCKER, f"moving: {_names(moving)}", "wait until the reassignment has ended, or cancel it"
        )
    elif "reassign_partitions" in e.admin:
        yield Finding(Severity.BLOCKER, "/admin/reassign_partitions is there", "have the controller end it")


def _offline(e: Evidence, phase: Phase) -> Iterator[Finding]:
    live = {*e.view.brokers, *e.brokers}
    states = e.view.states
    gone = [p for p in e.view.partitions() if p not in states or states[p].leader_and_isr.leader not in live]
    if gone:
        yield Finding(Severity.BLOCKER, f"without live leader: {_names(gone)}", "start the brokers that hold them")


def _under_replicated(e: Evidence, phase: Phase) -> Iterator[Finding]:
    live = {*e.view.brokers, *e.brokers}
    named = {b for topic in e.view.topics.values() for r in topic.assignment.values() for b in r}
    if dead := sorted(named - live):
        yield Finding(
            Severity.BLOCKER,
            f"brokers {join_ids(dead, ', ')} are assigned replicas and not registered: the load waits for them",
            "start them, or kt drain them",
        )
    behind = [
        p
        for p in e.view.partitions()
        if p in e.view.states
        and not set(e.view.topics[p.topic].assignment[p.partition]) - e.view.adding(p)
        <= set(e.view.states[p].leader_and_isr.isr)
    ]
    if behind:
        yield Finding(Severity.WARNING, f"not in sync: {_names(behind)}", "wait until all replicas are in sync")


def _deletion(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if not e.view.marked_for_deletion:
        return
    names = _names(sorted(e.view.marked_for_deletion))
    if "false" in e.setting("delete.topic.enable").values():
        yield Finding(
            Severity.WARNING,
            f"marked, and delete.topic.enable=false: {names}",
            "take the marks off /admin/delete_topics",
        )
    else:
        yield Finding(Severity.BLOCKER, f"being deleted: {names}", "wait until the topics are gone")


def _stray_admin(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if "preferred_replica_election" in e.admin:
        yield Finding(
            Severity.WARNING, "/admin/preferred_replica_election is there", "wait until the election has ended"
        )
    if unknown := sorted(e.admin - AdminZnode.KNOWN):
        yield Finding(Severity.WARNING, f"below /admin: {', '.join(unknown)}", "find out what it is for, and delete it")
    if e.stale_changes:
        yield Finding(
            Severity.WARNING, f"{e.stale_changes} config changes older than 15 min", "the controller takes none up"
        )


def _topic_names(e: Evidence, phase: Phase) -> Iterator[Finding]:
    illegal = [name for name in e.topics if not is_legal(name)]
    if illegal:
        yield Finding(
            Severity.BLOCKER,
            f"illegal names: {_names(illegal)}",
            "copy what they hold to other topics, and delete them",
        )
    folded = Counter(map(fold, e.topics))
    if alike := [name for name in e.topics if folded[fold(name)] > 1]:
        yield Finding(Severity.WARNING, f"names that collide in metrics: {_names(alike)}", "rename one of each pair")


def _assignments(e: Evidence, phase: Phase) -> Iterator[Finding]:
    repair = "repair the node"
    if e.unreadable:
        yield Finding(Severity.BLOCKER, f"cannot be read: {_names(e.unreadable)}", repair)
    gaps = [t for t, node in e.view.topics.items() if set(node.assignment) != set(range(len(node.assignment)))]
    empty = [p for p in e.view.partitions() if not e.view.topics[p.topic].assignment[p.partition]]
    doubled = [p for p in e.view.partitions() if len(set(r := e.view.topics[p.topic].assignment[p.partition])) < len(r)]
    stateless = [p for p in e.view.partitions() if p not in e.view.states and str(p) not in e.unreadable]
    for what, names in (
        ("partitions are not 0 to n-1", gaps),
        ("no replicas", empty),
        ("replicas listed twice", doubled),
        ("no state", stateless),
    ):
        if names:
            yield Finding(Severity.BLOCKER, f"{what}: {_names(names)}", repair)
    if e.orphans:
        yield Finding(
            Severity.WARNING, f"configs of no topic: {_names(e.orphans)}", "delete those nodes of /config/topics"
        )


def _topic_id(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if without := [t for t, node in e.view.topics.items() if not node.raw.get("topic_id")]:
        yield Finding(Severity.NOTE, f"without id: {_names(without)}", "nothing: they get one at the load")


def _acl(e: Evidence, phase: Phase) -> Iterator[Finding]:
    yield from _silent(e, "authorizer.class.name")
    told = e.setting("authorizer.class.name")
    if len(told) > 1 and len(set(told.values())) > 1 and not e.kraft:
        classes = sorted({name or "none" for name in told.values()})
        yield Finding(Severity.BLOCKER, f"authorizers differ: {', '.join(classes)}", "set one on all brokers")
    if strange := sorted(set(told.values()).difference(AUTHORIZERS)):
        yield Finding(
            Severity.BLOCKER,
            f"{', '.join(strange)}",
            "make sure that it works without ZooKeeper, or use StandardAuthorizer",
        )
    if e.acls:
        yield Finding(
            Severity.NOTE,
            f"{in_number(e.acls, 'resource has', 'resources have')} ACLs",
            f"set authorizer.class.name={AUTHORIZERS[-1]} on controllers and KRaft brokers",
        )


def _scram(e: Evidence, phase: Phase) -> Iterator[Finding]:
    users = [user for user, config in e.configs["users"].items() if any(key.startswith("SCRAM-") for key in config)]
    if not users:
        return
    old = _older_than(e, (3, 5))
    yield Finding(
        Severity.WARNING if old else Severity.NOTE,
        f"users with SCRAM: {_names(users)}",
        "upgrade to 3.5 or later: before, they are not carried over" if old else "nothing: they are carried over",
    )


def _tokens(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if e.tokens and _older_than(e, (3, 6)):
        yield Finding(
            Severity.WARNING, f"{e.tokens} delegation tokens", "upgrade to 3.6 or later: before, they are lost"
        )


_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


def _quotas(e: Evidence, phase: Phase) -> Iterator[Finding]:
    entities = {f"{kind}/{name}": c for kind in ("users", "clients") for name, c in e.configs[kind].items()}
    limited = {name: c for name, c in entities.items() if any(key in c for key in _QUOTAS)}
    broken = [name for name, c in limited.items() for key in _QUOTAS if key in c and not _is_number(c[key])]
    if broken:
        yield Finding(Severity.BLOCKER, f"no numbers: {_names(broken)}", "set the quota anew: the load fails on it")
    encoded = [name for name in limited if "%" in name or name.endswith(ConfigZnode.DEFAULT)]
    if encoded and _older_than(e, (3, 8)):  # nothing tells 3.7.1 from 3.7.0
        yield Finding(
            Severity.WARNING, f"quotas of {_names(encoded)}", "upgrade to 3.9: 3.6.1, 3.7.0 and earlier lose them"
        )


def _dynamic_configs(e: Evidence, phase: Phase) -> Iterator[Finding]:
    found = {broker: config for broker, config in e.configs["brokers"].items() if config}
    if not found or phase in DURING:
        return
    names = [
        f"{'all brokers' if b == ConfigZnode.DEFAULT else f'broker {b}'}: {', '.join(sorted(c))}"
        for b, c in found.items()
    ]
    secret = any(word in key for config in found.values() for key in config for word in SECRETS)
    yield Finding(
        Severity.WARNING,
        "; ".join(names),
        "set password.encoder.secret on the controllers too" if secret else "look whether each is still wanted",
    )


def _unsupported(e: Evidence, phase: Phase) -> Iterator[Finding]:
    yield from _silent(e, "control.plane.listener.name")
    if planes := e.setting("control.plane.listener.name"):
        yield Finding(
            Severity.BLOCKER if phase in DURING else Severity.NOTE,
            f"control.plane.listener.name on brokers {join_ids(planes, ', ')}",
            "take it away before brokers become KRaft brokers",
        )
    formats = [f"{t}: {key}" for t, c in sorted(e.view.configs.items()) for key in DROPPED if key in c]
    if formats:
        yield Finding(Severity.NOTE, f"settings that 4.x drops: {_names(formats)}", "delete them before 4.0")


def _producer_ids(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if _older_than(e, (3, 6)):
        yield Finding(
            Severity.WARNING, "before 3.6.1 (3.5.2) producer ids may be given twice after the load", "upgrade to 3.9"
        )


def _registered(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if phase is Phase.HYBRID and (unknown := sorted(set(e.view.brokers) - set(e.brokers))):
        yield Finding(
            Severity.BLOCKER,
            f"brokers {join_ids(unknown, ', ')} are in /brokers/ids, and not in the metadata",
            "restart them with zookeeper.metadata.migration.enable=true and the controllers' addresses",
        )


def _not_reregistered(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if phase in WITHOUT_ZOOKEEPER:
        yield from _silent(e, "kind")
        old = [b for b, answer in sorted(e.answers.told.items()) if LEADER_AND_ISR in answer.served]
        if old:
            yield Finding(
                Severity.BLOCKER,
                f"brokers {join_ids(old, ', ')} still answer as ZooKeeper brokers",
                "restart them as KRaft brokers",
            )


def _controllers(e: Evidence, phase: Phase) -> Iterator[Finding]:
    c = e.controllers
    if c is None:
        yield Finding(Severity.NOTE, "not asked", "name them by --bootstrap-controller")
        return
    if c.unreachable:
        yield from _unreachable(c, phase)
        return
    for controller, why in c.silent.items():
        yield Finding(Severity.UNKNOWN, f"controller {controller}: {why}", "have it answer, and check again")
    if c.untold:
        yield Finding(
            Severity.UNKNOWN,
            f"how the quorum is: {c.untold}",
            "have its leader tell, or look with Kafka's own kafka-metadata-quorum",
        )
    elif c.quorum.leader is None:
        yield Finding(Severity.BLOCKER, "the quorum has no leader", "start enough controllers for a majority")
    for voter, behind_s in c.quorum.behind_s.items():
        if behind_s is None or behind_s > LATE_S:
            since = "since the leader was elected" if behind_s is None else f"for {behind_s:.0f} s"
            yield Finding(
                Severity.BLOCKER, f"voter {voter} has not caught up {since}", "start it, or find out what holds it up"
            )
    still = [controller for controller, answer in c.told.items() if not answer.migrates]
    if still and phase in BEFORE_LOAD:
        yield Finding(
            Severity.BLOCKER,
            f"controllers {join_ids(still, ', ')} are not set to migrate",
            "restart them with zookeeper.metadata.migration.enable=true and zookeeper.connect",
        )
    elif still and phase in DURING:
        yield Finding(
            Severity.BLOCKER,
            f"controllers {join_ids(still, ', ')} are not set to migrate any more: finalizing has begun",
            "restart the other controllers likewise if all brokers are KRaft brokers; else restart these with "
            "zookeeper.metadata.migration.enable=true, at once",
        )
    yield from _metadata_version(e, c)


def _unreachable(c: Controllers, phase: Phase) -> Iterator[Finding]:
    """Tell that none answers. Nothing is amiss only after the way back, where none is needed any more."""
    if not c.refused:
        remedy = "name the controllers' own addresses and, in --command-config, their listener's security; check again"
        yield Finding(Severity.UNKNOWN, c.unreachable, remedy)
    elif phase is Phase.ROLLING_BACK:
        yield Finding(Severity.UNKNOWN, c.unreachable, "see on each controller's host that its process is stopped")
    elif phase is not Phase.ROLLED_BACK:
        yield Finding(Severity.UNKNOWN, c.unreachable, "start the controllers, and check again")


def _metadata_version(e: Evidence, c: Controllers) -> Iterator[Finding]:
    """Compare what the controllers hold to with the newest protocol of the brokers with ZooKeeper."""
    told = {b: v for b, v in e.setting("inter.broker.protocol.version").items() if b in e.view.brokers}
    levels = [level for level in map(level_of, told.values()) if level is not None]
    finalized = {a.metadata_level for a in c.told.values()}
    for level in sorted(finalized - {None}, key=lambda known: known or 0):
        if level is not None and levels and level < max(levels):
            yield Finding(
                Severity.BLOCKER,
                f"metadata.version {named(level)} is below the brokers' inter.broker.protocol.version {named(max(levels))}",
                "format the controllers anew with a metadata.version not below the brokers' protocol",
            )
    if None in finalized:
        yield Finding(Severity.UNKNOWN, "controllers tell no metadata.version", "check again once they are up")


def _strays(e: Evidence, phase: Phase) -> Iterator[Finding]:
    yield from _silent(e, "replicas")
    for broker, strays in e.strays.items():
        yield Finding(
            Severity.WARNING,
            f"broker {broker} holds what no assignment names: {_names(strays)}",
            "let no replica go back to that broker before their directories are deleted",
        )


def _diverged(e: Evidence, phase: Phase) -> Iterator[Finding]:
    for d in e.differences[:SHOWN]:
        yield Finding(
            Severity.BLOCKER,
            f"{d.name}: in ZooKeeper ({d.zookeeper}), by the brokers ({d.brokers})",
            "look at the controllers' logs: writing to ZooKeeper fails; do not go back",
        )
    if (more := len(e.differences) - SHOWN) > 0:
        yield Finding(Severity.BLOCKER, f"and {more} more", "")
    if e.uncompared:
        yield Finding(Severity.UNKNOWN, e.uncompared, "have a KRaft broker answer, and check again")


def _epoch(e: Evidence, phase: Phase) -> Iterator[Finding]:
    """A broker's controller writes the next epoch: that must be above the KRaft controllers', or brokers refuse it."""
    if e.migration is None or phase is Phase.NONE or e.migration.controller_epoch < 0:
        return
    if e.controller_epoch is None or e.controller_epoch < e.migration.controller_epoch:
        yield Finding(
            Severity.BLOCKER,
            f"/controller_epoch is {e.controller_epoch}, /migration has {e.migration.controller_epoch}",
            f"before going back set /controller_epoch to {e.migration.controller_epoch}",
        )


def _residue(e: Evidence, phase: Phase) -> Iterator[Finding]:
    if phase is Phase.ROLLED_BACK:
        yield Finding(
            Severity.BLOCKER, "/migration is still there: the next attempt skips the load", "delete /migration"
        )


CONDITIONS: Final[Mapping[str, _Condition]] = {
    "phase": _phase,
    "ibp": _ibp,
    "software": _software,
    "jbod": _jbod,
    "broker_id": _broker_id,
    "reassignment": _reassignment,
    "offline": _offline,
    "under_replicated": _under_replicated,
    "deletion": _deletion,
    "stray_admin": _stray_admin,
    "names": _topic_names,
    "assignments": _assignments,
    "topic_id": _topic_id,
    "acl": _acl,
    "scram": _scram,
    "delegation_tokens": _tokens,
    "quotas": _quotas,
    "dynamic_configs": _dynamic_configs,
    "unsupported_config": _unsupported,
    "producer_ids": _producer_ids,
    "registered": _registered,
    "not_reregistered": _not_reregistered,
    "controllers": _controllers,
    "strays": _strays,
    "diverged": _diverged,
    "epoch": _epoch,
    "residue": _residue,
}
BLOCKERS: Final = frozenset(CONDITIONS) - {
    *("stray_admin", "topic_id", "scram", "delegation_tokens", "dynamic_configs", "producer_ids", "strays"),
}


# --- helpers ----------------------------------------------------------------------------------------------------


def _untold(e: Evidence, told: Iterable[int], what: str, of: Iterable[int] | None = None) -> Iterator[Finding]:
    """Yield what brokers have not told, and why."""
    for broker in sorted(set(e.view.brokers if of is None else of).difference(told)):
        why = e.answers.silent.get(broker, "does not tell it")
        yield Finding(Severity.UNKNOWN, f"{what} of broker {broker}: {why}", "have the broker answer, and check again")


def _silent(e: Evidence, what: str) -> Iterator[Finding]:
    """Find each broker that told nothing at all, for what is known by its answer alone."""
    return _untold(e, (), what, of=e.answers.silent)


def _older_than(e: Evidence, release: tuple[int, ...]) -> bool:
    return any(release_of(answer.served).number < release for answer in e.answers.told.values())


def _is_below(protocol: str, least: str) -> bool:
    """Compare two protocols; one before 3.0 is below any that is known by its level."""
    level, wanted = level_of(protocol), level_of(least)
    if level is None or wanted is None:
        return release_number(protocol) < release_number(least)
    return level < wanted


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names(names: Iterable[object]) -> str:
    return first_of(list(names), SHOWN)
