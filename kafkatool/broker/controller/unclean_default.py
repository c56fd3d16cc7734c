"""The brokers' own ``unclean.leader.election.enable``, for a controller beside them that was not told (CTL-44).

Kafka's default is true up to 0.10.2 and false since 0.11, and seldom written down: guessing it wrong loses records.
"""

import logging
from collections.abc import Iterable

from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, ProtocolError, RefusedError
from kafkatool.core.model.values import BrokerInfo, join_ids
from kafkatool.core.protocol.messages import api_versions, describe_configs
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest
from kafkatool.core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkatool.core.security.client_security import ClientSecurity

log = logging.getLogger(__name__)

NAME = "unclean.leader.election.enable"
_BROKER = 4  # the resource type
_TIMEOUT_MS = 20_000  # one that is gone refuses at once; one that pauses is worth waiting for, at a start
_GIVE_IT = f"give it: -o {NAME}=false, or =true, which may lose records (the default of Kafka up to 0.10.2)"


def ask_brokers(
    brokers: Iterable[BrokerInfo], listener: str, security: ClientSecurity | None, *, client_id: str
) -> bool:
    """Return what the brokers have, and say so in the log. Raises RefusedError if none can say, or not all the same."""
    answers: dict[bool, list[int]] = {}
    for broker in brokers:
        try:
            answer = _ask(broker, listener, security, client_id)
        except (BrokerUnreachableError, ProtocolError) as e:
            log.warning("broker %d cannot be asked for %s: %s", broker.id, NAME, e)
            continue
        if answer is None:
            log.warning("broker %d does not tell its %s", broker.id, NAME)
        else:
            answers.setdefault(answer, []).append(broker.id)
    if not answers:
        raise RefusedError(f"{NAME} is not given, and no broker could be asked for it", now=_GIVE_IT)
    if len(answers) > 1:
        raise RefusedError(
            f"{NAME} is not given; it is true at brokers {join_ids(answers[True], ', ')} and false at "
            f"{join_ids(answers[False], ', ')}",
            now=_GIVE_IT,
        )
    ((found, asked),) = answers.items()
    log.log(
        logging.WARNING if found else logging.INFO,
        "%s=%s, as brokers %s have it%s",
        NAME,
        str(found).lower(),
        join_ids(asked, ", "),
        ": a leader that lacks acknowledged records may be elected" if found else "",
    )
    return found


def _ask(broker: BrokerInfo, listener: str, security: ClientSecurity | None, client_id: str) -> bool | None:
    """Return the broker's value; None: it is too old to be asked (Kafka < 0.11), or does not tell."""
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        raise BrokerUnreachableError(f"it has no listener {listener}")
    with Connection(
        endpoint.host, endpoint.port, client_id=client_id, timeout_ms=_TIMEOUT_MS, security=security
    ) as connection:
        known = connection.send(api_versions.API, 0, ApiVersionsRequest()).api_keys
        if not any(k.api_key == describe_configs.API.key and k.min_version == 0 for k in known):
            return None
        resource = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker.id), configuration_keys=[NAME]
        )
        answer = connection.send(describe_configs.API, 0, DescribeConfigsRequest(resources=[resource]))
    values = [c.value for r in answer.results if not r.error_code for c in r.configs if c.name == NAME]
    return values[0].strip().lower() == "true" if values and values[0] is not None else None
