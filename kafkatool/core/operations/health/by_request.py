"""One look at the cluster by requests alone, for ``kt health``: what brokers tell, and what they cannot tell (ADM-107, 109).

Nothing that was not told passes for being well: each gap is named beside the check that it is missing in.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.client.rights import NEVER_CREATES
from kafkatool.core.errors import KafkatoolError, LoginRefusedError, NotPermittedError
from kafkatool.core.model.values import TopicPartition, first_of
from kafkatool.core.operations.brokers.answers import Answers, ask_brokers, is_kraft
from kafkatool.core.operations.brokers.overview import UNTHROTTLED
from kafkatool.core.operations.health.reading import BROKER_RATES, MIN_ISR, UNCLEAN, Reading, Voter
from kafkatool.core.operations.reassignment.runs import run_lock
from kafkatool.core.operations.reassignment.throttles import REPLICAS
from kafkatool.core.operations.requests import cluster_view
from kafkatool.core.operations.requests.moving import Moving, read_moves
from kafkatool.core.operations.requests.quorum import NO_QUORUM, Quorum, quorum_of, quorum_request
from kafkatool.core.protocol.messages import describe_configs, describe_quorum, metadata
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.zookeeper.view import ClusterView

ANSWER_MS: Final = 10_000  # for what the controller is asked: brokers keep such requests back while there is none
TOPICS_AT_ONCE: Final = 1000
SHOWN: Final = 3
_TOPIC: Final = 2  # the kind of a config's resource
_OF_TOPIC, _OF_BROKER, _OF_ALL, _STATIC = 1, 2, 3, 4  # sources of a config
_Found = TypeVar("_Found")


@dataclass(slots=True)
class _Gaps:
    """What could not be told, by check."""

    found: dict[str, list[str]] = field(default_factory=dict)

    def add(self, check: str, what: str) -> None:
        self.found.setdefault(check, []).append(what)


def read(client: ClusterClient) -> Reading:
    """Look at the cluster; writes nothing. Raises BrokerUnreachableError where no broker answers at all."""
    at_s, gaps = time.time(), _Gaps()
    # Before and behind who is in sync: of a move that ends or begins between the two the new replicas may be out of sync.
    client.begin_anew()
    client.refresh()  # the controller of the look before may be another's by now
    moves, why = _read_moves(client)
    view = cluster_view.read_cluster(client, moves=False)
    wanted = (MIN_ISR, UNCLEAN, *BROKER_RATES)
    answers = ask_brokers(view.brokers.values(), client.connections, configs=wanted)
    kraft = any(is_kraft(answer.served) for answer in answers.told.values())
    quorum = _read_quorum(client, gaps) if kraft else None
    if quorum is not None:
        view = replace(view, controller_id=quorum.leader)
        if quorum.leader is None:  # brokers tell what they heard last
            for check in ("partitions", "leaders", "brokers"):
                gaps.add(check, "what has changed since there was a controller")
    client.begin_anew()
    view = replace(view, configs=_read_topic_configs(client, view, gaps))
    if why is None or view.controller_id is not None:  # else nobody is there to tell
        later, why_later = _read_moves(client)
        moves, why = moves | later, why_later or why
    if why is not None:
        gaps.add("moves", f"what moves: {why}")
        gaps.add("throttles", "whether they stand for nothing, as what moves is not told")
    _note_what_only_zookeeper_tells(gaps, kraft=kraft)
    _note_hidden_topics(client, view, answers, gaps)
    rates, default_rates = _rates(answers, gaps)
    term = (quorum.leader, quorum.epoch) if quorum else None if kraft else (view.controller_id, 0)
    return Reading(
        at_s=at_s,
        view=_with_moves(view, moves),
        controller_since_s=None,
        controller_epoch=None,
        controller_epoch_writes=0,
        controller_epoch_since_s=at_s,
        requests={},
        deletions={},
        recovering=frozenset(),
        rates=rates,
        default_rates=default_rates,
        answers=answers,
        carried_out=run_lock.any_held(),
        term=term,
        voters=_voters(quorum) if quorum else (),
        moves_told=why is None,
        untold={check: tuple(what) for check, what in gaps.found.items()},
    )


# --- the controller's -------------------------------------------------------------------------------------------


def _read_quorum(client: ClusterClient, gaps: _Gaps) -> Quorum | None:
    """Ask who leads the quorum; None: nobody tells us. No leader, or no way to it, counts as no controller."""
    client.begin_anew(ANSWER_MS)
    try:
        answer = client.any(describe_quorum.API, quorum_request())
    except LoginRefusedError:
        raise
    except KafkatoolError:  # brokers answered just now; this they have from the leader
        return NO_QUORUM
    error = client.refusal(describe_quorum.API, answer.error_code)
    if isinstance(error, NotPermittedError):
        gaps.add("controller", str(error))
        return None
    quorum = quorum_of(answer)
    if quorum.leader is not None and not quorum.tells_times:
        gaps.add("controller", "how far the voters of the quorum are behind: brokers are older than 3.4")
    return quorum


def _voters(quorum: Quorum) -> tuple[Voter, ...]:
    return tuple(Voter(*voter) for voter in quorum.behind_s.items()) if quorum.tells_times else ()


def _read_moves(client: ClusterClient) -> tuple[dict[TopicPartition, Moving], KafkatoolError | None]:
    """Ask what moves; an error: why that is not told, so that nothing may be taken for being at rest."""
    client.begin_anew(ANSWER_MS)
    try:
        return read_moves(client, needed=True), None
    except LoginRefusedError:
        raise
    except KafkatoolError as e:
        return {}, e
    finally:
        client.begin_anew()


def _with_moves(view: ClusterView, moves: Mapping[TopicPartition, Moving]) -> ClusterView:
    """Note moves in topics. Their replicas stay as they were read with the ISR, which cannot be compared with later ones."""
    read = {p: tuple(view.topics[p.topic].assignment.get(p.partition, ())) for p in moves if p.topic in view.topics}
    return cluster_view.with_moves(
        view, {p: moves[p]._replace(replicas=replicas) for p, replicas in read.items() if replicas}
    )


# --- configs ----------------------------------------------------------------------------------------------------


def _read_topic_configs(client: ClusterClient, view: ClusterView, gaps: _Gaps) -> dict[str, dict[str, str]]:
    """Read what is set on topics of what the checks need."""
    names, found, refused = sorted(view.topics), dict[str, dict[str, str]](), list[str]()
    keys = [MIN_ISR, UNCLEAN, *REPLICAS]
    for start in range(0, len(names), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=_TOPIC, resource_name=name, configuration_keys=keys)
            for name in names[start : start + TOPICS_AT_ONCE]
        ]
        try:
            answer = client.any(describe_configs.API, DescribeConfigsRequest(resources=resources))
        except LoginRefusedError:
            raise
        except KafkatoolError as e:
            for check in ("partitions", "throttles", "unclean elections"):
                gaps.add(check, f"configs of topics: {e}")
            return {}
        for result in answer.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # it has gone since
            if result.error_code:
                refused.append(result.resource_name)
                continue
            found[result.resource_name] = {
                c.name: c.value
                for c in result.configs
                if c.value is not None
                and (c.config_source == _OF_TOPIC or (c.config_source < 0 and not c.is_default))
                and c.name in keys
            }
    if refused:
        for check in ("partitions", "throttles", "unclean elections"):
            gaps.add(check, f"configs of {first_of(sorted(refused), SHOWN)}, which may not be read")
    return found


def _rates(answers: Answers, gaps: _Gaps) -> tuple[dict[int, dict[str, str]], dict[str, str]]:
    """Return the throttles of brokers by broker, and those that stand for all, in their files or as a default."""
    own: dict[int, dict[str, str]] = {}
    of_all: dict[str, str] = {}
    untold = list(answers.silent)
    for broker, answer in sorted(answers.told.items()):
        if not answer.sources:
            untold.append(broker)
        for key in BROKER_RATES:
            value, source = (answer.configs or {}).get(key), answer.sources.get(key)
            if value is None or value == UNTHROTTLED:
                continue
            if source == _OF_BROKER:
                own.setdefault(broker, {})[key] = value
            elif source in (_OF_ALL, _STATIC):
                of_all[key] = value
    if untold:
        gaps.add("throttles", f"rates of {_brokers(untold)}")
        gaps.add("partitions", f"{MIN_ISR} of {_brokers(untold)}, which topics without their own have")
        gaps.add("unclean elections", f"whether {_brokers(untold)} would hold one")
    return own, of_all


# --- what cannot be told ----------------------------------------------------------------------------------------


def _note_what_only_zookeeper_tells(gaps: _Gaps, *, kraft: bool) -> None:
    gaps.add("unclean elections", "those of before the first look: --watch and --state see later ones")
    if not kraft:
        gaps.add("moves", "what waits in /admin for a controller: --zookeeper tells")
        gaps.add("deletions", "which topics are marked for deletion, and since when: --zookeeper tells")


def _note_hidden_topics(client: ClusterClient, view: ClusterView, answers: Answers, gaps: _Gaps) -> None:
    """Note topics that lie on disks and are not told of: brokers leave out what one may not describe."""
    on_disks = {
        p.topic for answer in answers.told.values() for d in answer.log_dirs or () for p in (*d.sizes, *d.arriving)
    }
    if hidden := sorted(on_disks.difference(view.topics) - {describe_quorum.METADATA_TOPIC}):
        gaps.add("partitions", f"{first_of(hidden, SHOWN)}: on disks, and not ours to describe, or being deleted")
    for left_out in client.unseen:
        gaps.add("partitions", left_out.text)
    blind = [broker for broker, answer in answers.told.items() if answer.log_dirs is None]
    if blind and not client.serves(metadata.API, least=NEVER_CREATES):  # nor can brokers be asked whether all is told
        what = "topics that are not ours to describe, if there are any"
        gaps.add("partitions", f"{what}: {_brokers(blind)} tell of no disk")


def _brokers(ids: Iterable[int]) -> str:
    names: Sequence[str] = [f"broker {b}" for b in sorted(ids)]
    return first_of(names, SHOWN)
