"""Throttles of moves taken off by a controller alone, which changes the configs of any broker, also of one that is down.

It does not tell what is set on brokers, nor which topics there are (ADM-19): so the rates of the brokers named come off
whether they are set or not, of which it writes down those that were, and the lists of the topics named. The rate of moves
between log directories stays: whether any goes on under it only brokers tell.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from kafkatool.core.client.controllers import ControllerClient
from kafkatool.core.operations.requests.throttles import (
    BROKER,
    OF_TOPIC,
    RATES,
    REPLICAS,
    TOPIC,
    config_request,
    error_codes,
    read_configs,
)
from kafkatool.core.protocol.messages import incremental_alter_configs
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from kafkatool.core.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def find_lists(client: ControllerClient, topics: Iterable[str]) -> dict[str, list[str]]:
    """Return which of those topics have lists of throttled replicas, and which of the two. Raises BrokerAnswerError."""
    found = read_configs(client, [(TOPIC, topic) for topic in sorted(topics)], list(REPLICAS))
    lists = {topic: [k for k, (_, source) in entries.items() if source == OF_TOPIC] for topic, entries in found.items()}
    return {topic: keys for topic, keys in lists.items() if keys}


def removal_request(brokers: Collection[int], lists: dict[str, list[str]]) -> IncrementalAlterConfigsRequest:
    """Make the request that takes the rates off those brokers, and those lists off their topics."""
    return config_request(
        [
            *((BROKER, str(broker), [(key, None) for key in RATES]) for broker in sorted(brokers)),
            *((TOPIC, topic, [(key, None) for key in found]) for topic, found in lists.items()),
        ]
    )


def remove(client: ControllerClient, request: IncrementalAlterConfigsRequest, *, validate_only: bool = False) -> None:
    """Send it, or have it judged alone; a broker that was never there has none. Raises BrokerAnswerError."""
    api = incremental_alter_configs.API
    answer = client.controller(api, replace(request, validate_only=validate_only), codes=error_codes)
    for result in answer.responses:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
            raise client.refusal(api, result.error_code, result.error_message, resource=result.resource_name)
