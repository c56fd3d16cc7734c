"""DescribeClientQuotas (key 48), versions 0-1, 1 flexible: the quotas of users, clients and addresses (KIP-546).

Source: Kafka 2.8.2 message/DescribeClientQuotas*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Float64, Int8, Int16, Int32, message

EXACT, DEFAULT, ANY = 0, 1, 2
"""What of an entity's type is meant: the name given, the default, all that are named or default."""


@message
class QuotaComponent:
    """What is wanted of one type of entity: ``user``, ``client-id`` or ``ip``."""

    entity_type: str
    match_type: Int8
    match: str | None = None


@message
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """``strict``: only entities that are of no other type."""

    components: list[QuotaComponent]
    strict: bool = False


@message
class QuotaEntityPart:
    """``entity_name`` None: the default."""

    entity_type: str
    entity_name: str | None = None


@message
class QuotaValue:
    """One limit."""

    key: str
    value: Float64


@message
class QuotaEntry:
    """One entity and its quotas."""

    entity: list[QuotaEntityPart]
    values: list[QuotaValue]


@message
class DescribeClientQuotasResponse:
    """``entries`` None: an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    entries: list[QuotaEntry] | None = None


API = Api(48, "DescribeClientQuotas", 0, 1, DescribeClientQuotasRequest, DescribeClientQuotasResponse, flexible_from=1)
