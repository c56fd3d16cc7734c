"""AlterConfigs (key 33), versions 0-2, 2 flexible: all settings of a resource anew.

Source: Kafka 2.8.2 message/AlterConfigs*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, message


@message
class AlterableConfig:
    """One setting."""

    name: str
    value: str | None


@message
class AlterConfigsResource:
    """``resource_type`` 2: topic, 4: broker. What ``configs`` does not name goes back to its default."""

    resource_type: Int8
    resource_name: str
    configs: list[AlterableConfig]


@message
class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """``validate_only``: say what would happen."""

    resources: list[AlterConfigsResource]
    validate_only: bool = False


@message
class AlterConfigsResult:
    """Outcome for one resource."""

    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str


@message
class AlterConfigsResponse:
    """One entry for each resource."""

    throttle_time_ms: Int32 = 0
    resources: list[AlterConfigsResult]


API = Api(33, "AlterConfigs", 0, 2, AlterConfigsRequest, AlterConfigsResponse, flexible_from=2)
