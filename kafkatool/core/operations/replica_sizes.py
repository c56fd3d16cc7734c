"""How large partitions are, as the brokers say (DescribeLogDirs, Kafka 1.0 and later); for plans and progress."""

from collections.abc import Collection, Iterable
from typing import Final

from kafkatool.core.errors import BrokerUnreachableError
from kafkatool.core.model import BrokerInfo, TopicPartition
from kafkatool.core.operations.replica_reader import NegotiatedConnection
from kafkatool.core.protocol import describe_log_dirs

TIMEOUT_MS: Final = 3000  # of connecting, and of each answer; sizes are good to have, not worth a long wait


def read_sizes(brokers: Iterable[BrokerInfo], partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Bytes of the largest replica of each partition, of those that some broker told.

    Brokers that do not answer, do not know the question or have no PLAINTEXT listener tell nothing.
    """
    sizes: dict[TopicPartition, int] = {}
    for broker in brokers:
        endpoint = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
        if endpoint is None:
            continue
        try:
            answer = _ask(endpoint.host, endpoint.port)
        except BrokerUnreachableError:
            continue  # its partitions have replicas elsewhere, or stay unknown
        for result in answer.results:
            for topic in result.topics:
                for p in topic.partitions:
                    partition = TopicPartition(topic.topic, p.partition)
                    sizes[partition] = max(sizes.get(partition, 0), p.partition_size)
    return {p: sizes[p] for p in partitions if p in sizes}


def _ask(host: str, port: int) -> describe_log_dirs.DescribeLogDirsResponse:
    connection = NegotiatedConnection(host, port, timeout_ms=TIMEOUT_MS)
    try:
        return connection.send(describe_log_dirs.API, describe_log_dirs.DescribeLogDirsRequest(topics=None))
    finally:
        connection.close()
