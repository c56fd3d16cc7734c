"""Refusals for want of a right, in the same words whatever was asked (SEC-40)."""

import os
from typing import Final

from kafkatool.core.client.unseen import Unseen
from kafkatool.core.errors import BrokerAnswerError, NotPermittedError
from kafkatool.core.protocol.codec.schema import Api
from kafkatool.core.protocol.messages import metadata
from kafkatool.core.protocol.messages.error_codes import ErrorCode, answer_error

EVERY_TOPIC: Final = "every topic"
EVERY_TRANSACTIONAL_ID: Final = "every transactional id"
NEVER_CREATES: Final = 4
"""The first version of Metadata that can ask for a topic without having it made."""
_KINDS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional id",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "delegation token",
}
OPERATIONS: Final = {
    "AlterClientQuotas": "AlterConfigs",
    "AlterPartitionReassignments": "Alter",
    "AlterReplicaLogDirs": "Alter",
    "AlterUserScramCredentials": "Alter",
    "CreateAcls": "Alter",
    "CreatePartitions": "Alter",
    "CreateTopics": "Create",
    "DeleteAcls": "Alter",
    "DeleteTopics": "Delete",
    "DescribeAcls": "Describe",
    "DescribeClientQuotas": "DescribeConfigs",
    "DescribeCluster": "Describe",
    "DescribeConfigs": "DescribeConfigs",
    "DescribeLogDirs": "Describe",
    "DescribeProducers": "Read",
    "DescribeQuorum": "Describe",
    "DescribeTopicPartitions": "Describe",
    "DescribeTransactions": "Describe",
    "DescribeUserScramCredentials": "Describe",
    "ElectLeaders": "Alter",
    "Fetch": "Read",
    "FindCoordinator": "Describe",
    "IncrementalAlterConfigs": "AlterConfigs",
    "ListOffsets": "Describe",
    "ListPartitionReassignments": "Describe",
    "ListTransactions": "Describe",
    "Metadata": "Describe",
    "WriteTxnMarkers": "ClusterAction",
}
"""What each request needs on what it names. Source: Kafka 3.9.0 server/KafkaApis.scala."""


def is_refusal(code: int) -> bool:
    """Tell whether a code says that a right is missing."""
    return code in _KINDS


def refusal(
    api: Api, code: int, message: str | None, resource: str | None, *, broker: str, principal: str
) -> BrokerAnswerError:
    """Return the error that a code in an answer is: one of rights in our words, another in the broker's.

    ``resource`` is the name of what was refused; a cluster has none.
    """
    if not is_refusal(code):
        return answer_error(code, message)
    known = ErrorCode(code)
    kind = _KINDS[known]
    if resource in (EVERY_TOPIC, EVERY_TRANSACTIONAL_ID):
        what = resource
    else:
        what = kind if resource is None or kind == "cluster" else f"{kind} {resource}"
    return NotPermittedError(code, known.name, OPERATIONS.get(api.name, api.name), what, broker, principal)


def about_every_topic() -> metadata.MetadataRequest:
    """Make the request that asks whether any topic there could be may be described, of versions from NEVER_CREATES on."""
    asked = [metadata.MetadataRequestTopic(topic=name_of_none())]
    return metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)


def note_topics_left_out(answer: metadata.MetadataResponse, unseen: Unseen, *, broker: str, principal: str) -> None:
    """Note, by the answer to ``about_every_topic``, that of all topics those alone are told that may be described.

    A topic that an entry denies by its name stays out of this.
    """
    for topic in answer.topics:
        error = refusal(metadata.API, topic.error_code, None, EVERY_TOPIC, broker=broker, principal=principal)
        if isinstance(error, NotPermittedError):
            unseen.note(error, "topics that may not be described are left out", only_maybe=True)


def name_of_none() -> str:
    """Make a name that nothing has and that no entry's prefix fits: who may describe it may describe any by its name.

    Whoever finds it in the log of an authorizer can tell from it what was asked.
    """
    return f"{os.urandom(8).hex()}.kt-asks-whether-all-may-be-described"
