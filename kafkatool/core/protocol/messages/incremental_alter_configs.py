"""IncrementalAlterConfigs (key 44), versions 0-1, 1 flexible: single settings of a resource (KIP-339).

Source: Kafka 2.8.2 message/IncrementalAlterConfigs*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int32, message
from kafkatool.core.protocol.messages.alter_configs import AlterConfigsResult


@message
class ConfigOperation:
    """``config_operation`` 0: set, 1: delete, 2: append to a list, 3: subtract from a list."""

    name: str
    config_operation: Int8
    value: str | None


@message
class IncrementalAlterConfigsResource:
    """``resource_type`` 2: topic, 4: broker."""

    resource_type: Int8
    resource_name: str
    configs: list[ConfigOperation]


@message
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """``validate_only``: say what would happen."""

    resources: list[IncrementalAlterConfigsResource]
    validate_only: bool = False


@message
class IncrementalAlterConfigsResponse:
    """One entry for each resource."""

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResult]


API = Api(
    44,
    "IncrementalAlterConfigs",
    0,
    1,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    flexible_from=1,
)
