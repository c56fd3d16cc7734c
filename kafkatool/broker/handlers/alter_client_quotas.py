"""AlterClientQuotas (key 49), versions 0-1: set and remove quotas (ADM-77, 78; KIP-546)."""

from kafkatool.broker.administration.quotas import Change
from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.broker.handlers.error_reply import code_of
from kafkatool.core.errors import ZooKeeperError
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import alter_client_quotas as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode


@Served(wire.API, versions=(0, 1), asks=(cluster(Operation.ALTER_CONFIGS, with_text=True),))
def handle(request: wire.AlterClientQuotasRequest, call: Call) -> wire.AlterClientQuotasResponse:
    return wire.AlterClientQuotasResponse(
        entries=[_altered(one, call, request.validate_only) for one in request.entries]
    )


def _altered(one: wire.QuotaAlteration, call: Call, validate_only: bool) -> wire.AlteredQuotas:
    entity = [(part.entity_type, part.entity_name) for part in one.entity]
    changes = [Change(op.key, None if op.remove else op.value) for op in one.ops]
    try:
        call.context.quota_admin.change(entity, changes, validate_only=validate_only)
    except (AdminError, ZooKeeperError) as e:
        return wire.AlteredQuotas(error_code=code_of(e), error_message=str(e), entity=one.entity)
    return wire.AlteredQuotas(error_code=ErrorCode.NONE, entity=one.entity)
