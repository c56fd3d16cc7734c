"""DescribeConfigs (key 32), versions 0-4, 4 flexible. Source: Kafka 2.8.2 message/DescribeConfigs*.json."""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int8, Int16, Int32, Since, Until, message


@message
class DescribeConfigsResource:
    """``resource_type`` 2: topic, 4: broker. ``configuration_keys`` None: all."""

    resource_type: Int8
    resource_name: str
    configuration_keys: list[str] | None = None


@message
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Resources whose settings are wanted."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Annotated[bool, Since(1)] = False
    include_documentation: Annotated[bool, Since(3)] = False


@message
class DescribeConfigsSynonym:
    """A further place the value could come from."""

    name: str
    value: str | None
    source: Int8


@message
class DescribeConfigsEntry:
    """One setting. ``config_source``: 1 topic, 2 dynamic broker, 3 dynamic default, 4 static broker, 5 default."""

    name: str
    value: str | None
    read_only: bool
    is_default: Annotated[bool, Until(0)] = False
    config_source: Annotated[Int8, Since(1)] = -1
    is_sensitive: bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], Since(1)] = field(default_factory=list)
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[str | None, Since(3)] = None


@message
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: Int16 = 0
    error_message: str | None = None
    resource_type: Int8
    resource_name: str
    configs: list[DescribeConfigsEntry] = field(default_factory=list)


@message
class DescribeConfigsResponse:
    """One entry for each resource."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


API = Api(32, "DescribeConfigs", 0, 4, DescribeConfigsRequest, DescribeConfigsResponse, flexible_from=4)
