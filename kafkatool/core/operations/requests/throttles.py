"""Throttles of moves, set and taken off by requests: each broker is asked about itself (ADM-35, ADM-38)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import KafkatoolError, NotPermittedError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.requests.moving import Moving
from kafkatool.core.protocol.messages import describe_configs, incremental_alter_configs
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.protocol.messages.incremental_alter_configs import (
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER = 2, 4  # kinds of a config's resource
SET, DELETE = 0, 1  # config operations
OF_TOPIC, OF_BROKER = 1, 2  # sources of a config: set on this topic, on this broker
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_OF_A_MOVE: Final = re.compile(r"\d+:\d+(,\d+:\d+)*")  # a list as plans have it; * is an administrator's

Replicas = Mapping[TopicPartition, tuple[int, ...]]


class Throttle(NamedTuple):
    """The lists of each topic, and the brokers that hold to the rate."""

    lists: Mapping[str, tuple[str, str]]  # leaders', followers'
    brokers: tuple[int, ...]

    @classmethod
    def of(cls, plan: Replicas, origin: Replicas, moving: Mapping[TopicPartition, Moving]) -> "Throttle":
        """Plan it for the plan, and for what moves already: its rate is of brokers, so theirs too."""
        leaders: dict[str, set[str]] = {}
        followers: dict[str, set[str]] = {}
        brokers: set[int] = set()
        moves = {p: (m.origin, m.adding) for p, m in moving.items() if p not in plan}
        moves |= {p: (origin[p], tuple(b for b in to if b not in origin[p])) for p, to in plan.items()}
        for (topic, number), (before, adding) in moves.items():
            leaders.setdefault(topic, set()).update(f"{number}:{b}" for b in before)
            followers.setdefault(topic, set()).update(f"{number}:{b}" for b in adding)
            brokers.update(before, adding)
        lists = {t: (",".join(sorted(leaders[t])), ",".join(sorted(followers[t]))) for t in sorted(leaders)}
        return cls(lists, tuple(sorted(brokers)))

    def topic_request(self) -> IncrementalAlterConfigsRequest:
        """Make the request that sets the lists."""
        return config_request(
            (TOPIC, topic, [(REPLICAS[0], leaders), (REPLICAS[1], followers)])
            for topic, (leaders, followers) in self.lists.items()
        )


def broker_request(broker: int, rates: Mapping[str, int]) -> IncrementalAlterConfigsRequest:
    """Make the request that sets rates on a broker."""
    return config_request([(BROKER, str(broker), [(key, str(rate)) for key, rate in rates.items()])])


Change = tuple[int | None, IncrementalAlterConfigsRequest]
"""A request, and the broker that it goes to; None: any."""


def setting_requests(client: ClusterClient, throttle: Throttle, rate: int) -> list[Change]:
    """Make the requests that set rates, then lists.

    A broker that is down was forced: it is told when kt is told to go on.
    """
    rates = dict.fromkeys(RATES, rate)
    live = [broker for broker in throttle.brokers if broker in client.brokers]
    return [*((broker, broker_request(broker, rates)) for broker in live), (None, throttle.topic_request())]


def carry_out(client: ClusterClient, changes: Iterable[Change], *, validate_only: bool = False) -> None:
    """Send those requests, or have them judged alone. Raises BrokerAnswerError."""
    for broker, request in changes:
        _alter(client, replace(request, validate_only=validate_only), broker)


class Own(NamedTuple):
    """The throttles that a run sets: by which ``changes``, what undoes them, and whether ``others_moved`` at that time."""

    changes: Sequence[Change] = ()
    undoing: Sequence[Change] = ()
    others_moved: bool = False

    @property
    def lists_before(self) -> dict[str, dict[str, str]]:
        """Return the lists that were set on its topics, by topic and key."""
        return {name: values for (_, kind, name), values in self.before.items() if kind == TOPIC}

    @property
    def before(self) -> dict[tuple[int | None, int, str], dict[str, str]]:
        """Return what was set before, by the broker that is asked, and the kind and name of the resource."""
        found: dict[tuple[int | None, int, str], dict[str, str]] = {}
        for broker, request in self.undoing:
            for r in request.resources:
                values = {c.name: c.value for c in r.configs if c.value}
                found.setdefault((broker, r.resource_type, r.resource_name), {}).update(values)
        return found


def own(client: ClusterClient, changes: Sequence[Change], *, others_moved: bool) -> Own:
    """Read what those changes will replace: what undoes them begins with the last. Raises NotPermittedError."""
    made: list[Change] = []
    for broker, request in reversed(changes):
        resources = [(r.resource_type, r.resource_name) for r in request.resources]
        keys = list(dict.fromkeys(c.name for r in request.resources for c in r.configs))
        found = read_configs(client, resources, keys, broker, needed=True)
        made.append((broker, config_request((k, n, _as_set(k, keys, found.get(n, {}))) for k, n in resources)))
    return Own(changes, made, others_moved)


def _as_set(
    kind: int, keys: Iterable[str], found: Mapping[str, tuple[str | None, int]]
) -> list[tuple[str, str | None]]:
    wanted = OF_BROKER if kind == BROKER else OF_TOPIC
    values = {key: value for key, (value, source) in found.items() if source == wanted}
    return [(key, values.get(key)) for key in keys]


def undo(client: ClusterClient, done: Own) -> KafkatoolError | None:
    """Put back what a run has replaced, as far as that can be done; return why not all of it could."""
    failure: KafkatoolError | None = None
    for change in done.undoing:
        client.begin_anew()
        try:
            carry_out(client, [change])
        except NotPermittedError:
            pass  # nor was it set then
        except KafkatoolError as e:
            failure = e
    return failure


class Set(NamedTuple):
    """The throttles found: keys set on live brokers and on topics.

    ``standing``: the lists among them that no move has set, but an administrator, by topic and key.
    """

    brokers: Mapping[int, list[str]]
    topics: Mapping[str, list[str]]
    standing: Mapping[tuple[str, str], str] = MappingProxyType({})


def find(client: ClusterClient, topics: Iterable[str], plan_topics: Iterable[str]) -> Set:
    """Read what is set on all live brokers and on topics; of those not the plan's only lists as moves have them."""
    of_plan = set(plan_topics)
    brokers = {}
    for broker in client.brokers:
        entries = read_configs(client, [(BROKER, str(broker))], [*RATES, LOG_DIR_RATE], broker).get(str(broker), {})
        if keys := [key for key, (_, source) in entries.items() if source == OF_BROKER]:
            brokers[broker] = keys
    found = read_configs(client, [(TOPIC, t) for t in topics], list(REPLICAS))
    lists: dict[str, list[str]] = {}
    standing: dict[tuple[str, str], str] = {}
    for topic, entries in found.items():
        for key, value in ((key, value or "") for key, (value, source) in entries.items() if source == OF_TOPIC):
            of_a_move = not value or _OF_A_MOVE.fullmatch(value)
            if topic in of_plan or (value and of_a_move):
                lists.setdefault(topic, []).append(key)
                if not of_a_move:
                    standing[topic, key] = value
    return Set(brokers, lists, standing)


def with_own(client: ClusterClient, found: Set, run: Own) -> Set:
    """Add what a run has set itself: a broker that learns of configs late does not tell of it yet.

    A list that stands there as before the run is not told of: it stands there again at the end.
    """
    brokers, topics, lists = dict(found.brokers), dict(found.topics), run.lists_before
    standing = {(t, key): value for (t, key), value in found.standing.items() if lists.get(t, {}).get(key) != value}
    for broker, request in run.changes:
        for r in request.resources:
            keys = [c.name for c in r.configs]
            if broker is None:
                topics[r.resource_name] = list(dict.fromkeys((*topics.get(r.resource_name, ()), *keys)))
            elif broker in client.brokers:
                brokers[broker] = list(dict.fromkeys((*brokers.get(broker, ()), *keys)))
    return Set(brokers, topics, standing)


def standing_again(run: Own, found: Set) -> list[Change]:
    """Make the requests for what is to stand again at a run's end as before: what no other move had set (RSN-23X).

    Rates were those of other moves if some went on when it began, or their lists are ``found`` still.
    """
    before, lists = run.before, run.lists_before
    of_moves = any(_OF_A_MOVE.fullmatch(value) for values in lists.values() for value in values.values())
    of_others = run.others_moved or of_moves or bool(found.topics.keys() - lists.keys())
    kept = {
        (broker, kind, name): [
            (key, value)
            for key, value in values.items()
            if (not of_others if kind == BROKER else not _OF_A_MOVE.fullmatch(value))
        ]
        for (broker, kind, name), values in before.items()
    }
    return [(broker, config_request([(kind, name, keys)])) for (broker, kind, name), keys in kept.items() if keys]


def removal_requests(found: Set) -> list[Change]:
    """Make the requests that delete just those keys."""
    changes: list[Change] = [
        (broker, config_request([(BROKER, str(broker), [(key, None) for key in keys])]))
        for broker, keys in found.brokers.items()
    ]
    if found.topics:
        lists = config_request((TOPIC, t, [(key, None) for key in keys]) for t, keys in found.topics.items())
        changes.append((None, lists))
    return changes


def remove(client: ClusterClient, found: Set) -> None:
    """Delete just those keys. Raises BrokerAnswerError."""
    carry_out(client, removal_requests(found))


def config_request(
    changes: Iterable[tuple[int, str, Sequence[tuple[str, str | None]]]],
) -> IncrementalAlterConfigsRequest:
    """Make the request that sets keys of those resources, or deletes them where the value is None."""
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    ConfigOperation(name=key, config_operation=DELETE if value is None else SET, value=value)
                    for key, value in values
                ],
            )
            for kind, name, values in changes
        ]
    )


def error_codes(answer: IncrementalAlterConfigsResponse) -> set[int]:
    """Return the codes of what was not changed."""
    return {result.error_code for result in answer.responses if result.error_code}


def _alter(client: ClusterClient, request: IncrementalAlterConfigsRequest, broker: int | None = None) -> None:
    api = incremental_alter_configs.API
    if broker is None:
        answer = client.any(api, request, codes=error_codes)  # sent twice it does no harm
    else:
        answer = client.broker(broker, api, request, codes=error_codes)
    for result in answer.responses:
        if result.error_code:
            raise client.refusal(api, result.error_code, result.error_message, resource=result.resource_name)


def read_configs(
    client: ClusterClient,
    resources: list[tuple[int, str]],
    keys: list[str],
    broker: int | None = None,
    *,
    needed: bool = False,
) -> dict[str, dict[str, tuple[str | None, int]]]:
    """Read the values of those keys with their sources, by resource; ``broker`` is asked, None: any.

    What may not be read is left out and noted, or raises NotPermittedError where it is ``needed``.
    """
    if not resources:
        return {}
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ]
    )
    api = describe_configs.API
    answer = client.any(api, request) if broker is None else client.broker(broker, api, request)
    for r in answer.results:
        error = client.refusal(api, r.error_code, resource=r.resource_name)
        if isinstance(error, NotPermittedError):
            if needed:
                raise error
            client.unseen.note(error, "throttles that are set there are not known", only_maybe=True)
    return {
        r.resource_name: {c.name: (c.value, c.config_source) for c in r.configs}
        for r in answer.results
        if not r.error_code
    }


def rate_set(client: ClusterClient) -> int | None:
    """Return the highest rate that is set on a live broker; None: none is."""
    rates = [rate for broker in client.brokers for rate in rates_of(client, broker)]
    return max((int(rate) for rate in rates if rate.isdecimal()), default=None)


def rates_of(client: ClusterClient, broker: int) -> list[str]:
    """Return the rates that are set on a broker that is up. Raises BrokerUnreachableError."""
    entries = read_configs(client, [(BROKER, str(broker))], list(RATES), broker).get(str(broker), {})
    return [value for value, source in entries.values() if source == OF_BROKER and value is not None]
