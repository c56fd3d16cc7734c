"""What stands in the way of moves, as brokers tell it: see ``hindrances``."""

from collections.abc import Mapping
from contextlib import suppress

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.errors import KafkatoolError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.operations.reassignment.hindrances import Hindrances, missing, too_slow
from kafkatool.core.operations.requests import throttles
from kafkatool.core.operations.requests.moving import Moving
from kafkatool.core.operations.requests.topic_reading import read_topics

WITHIN_MS = 3000  # of the time of who waits: a broker that does not answer is left out


def find_awaited(client: ClusterClient, moving: Mapping[TopicPartition, Moving]) -> tuple[int, ...]:
    """Return the brokers to which those moves copy that are not up, so far as the newest metadata tells."""
    return missing((m.adding for m in moving.values()), client.brokers)


def find(client: ClusterClient, moving: Mapping[TopicPartition, Moving]) -> Hindrances:
    """Look for all of it in a short time of its own; what cannot be read is left out."""
    rates: dict[int, list[str]] = {}
    leaderless: list[TopicPartition] = []
    concerned = {b for m in moving.values() for b in m.replicas}
    client.begin_anew(WITHIN_MS)
    with suppress(KafkatoolError):
        topics = read_topics(client, sorted({p.topic for p in moving}))
        leaders = {TopicPartition(t.name, p.partition): p.leader_id for t in topics.values() for p in t.partitions}
        leaderless = sorted(p for p in moving if leaders.get(p, 0) < 0)
        for broker in sorted(concerned.intersection(client.brokers)):
            rates[broker] = throttles.rates_of(client, broker)
    client.begin_anew()
    return Hindrances(find_awaited(client, moving), too_slow(rates, concerned), tuple(leaderless))
