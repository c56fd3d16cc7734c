"""ApiVersions (key 18), versions 0-3, 3 flexible: which requests the broker answers (BRK-11, 12).

Its response header never has tagged fields: a client must be able to read the answer to a version too new. Features of
the cluster are told by KRaft nodes (KIP-584), a migration by KRaft controllers (KIP-866).
Source: Kafka 3.9.1 message/ApiVersionsResponse.json.
"""

from dataclasses import field
from typing import Annotated

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Int16, Int32, Int64, Since, Tagged, message


@message
class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """The client's software, since version 3 (KIP-511)."""

    client_software_name: Annotated[str, Since(3)] = ""
    client_software_version: Annotated[str, Since(3)] = ""


@message
class ApiVersionsResponseKey:
    """Versions served of one API, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@message
class SupportedFeature:
    """A feature, and the levels of it that the node knows."""

    name: str
    min_version: Int16
    max_version: Int16


@message
class FinalizedFeature:
    """A feature, and the levels of it that hold in the cluster."""

    name: str
    max_version_level: Int16
    min_version_level: Int16


@message
class ApiVersionsResponse:
    """The throttle time comes after the list. ``zk_migration_ready``: a controller that is set to migrate."""

    error_code: Int16 = 0
    api_keys: list[ApiVersionsResponseKey]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0
    supported_features: Annotated[list[SupportedFeature], Since(3), Tagged(0)] = field(default_factory=list)
    finalized_features_epoch: Annotated[Int64, Since(3), Tagged(1)] = -1
    finalized_features: Annotated[list[FinalizedFeature], Since(3), Tagged(2)] = field(default_factory=list)
    zk_migration_ready: Annotated[bool, Since(3), Tagged(3)] = False


API = Api(18, "ApiVersions", 0, 3, ApiVersionsRequest, ApiVersionsResponse, flexible_from=3)
