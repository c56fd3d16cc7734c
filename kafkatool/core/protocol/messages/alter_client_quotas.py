"""AlterClientQuotas (key 49), versions 0-1, 1 flexible: set and remove quotas (KIP-546).

Source: Kafka 2.8.2 message/AlterClientQuotas*.json.
"""

from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.codec.types import Float64, Int16, Int32, message
from kafkatool.core.protocol.messages.describe_client_quotas import QuotaEntityPart


@message
class QuotaOp:
    """A quota to set, or to remove."""

    key: str
    value: Float64 = 0.0
    remove: bool = False


@message
class QuotaAlteration:
    """What to do with one entity's quotas."""

    entity: list[QuotaEntityPart]
    ops: list[QuotaOp]


@message
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """Each entity is by itself."""

    entries: list[QuotaAlteration]
    validate_only: bool = False


@message
class AlteredQuotas:
    """Outcome for one entity."""

    error_code: Int16 = 0
    error_message: str | None = None
    entity: list[QuotaEntityPart]


@message
class AlterClientQuotasResponse:
    """In the order asked."""

    throttle_time_ms: Int32 = 0
    entries: list[AlteredQuotas]


API = Api(49, "AlterClientQuotas", 0, 1, AlterClientQuotasRequest, AlterClientQuotasResponse, flexible_from=1)
