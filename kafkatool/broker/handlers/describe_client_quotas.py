"""DescribeClientQuotas (key 48), versions 0-1: the quotas of users, clients and addresses (ADM-77, 78; KIP-546)."""

from kafkatool.broker.administration.quotas import Wanted
from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import describe_client_quotas as wire


@Served(wire.API, versions=(0, 1), asks=(cluster(Operation.DESCRIBE_CONFIGS, with_text=True),))
def handle(request: wire.DescribeClientQuotasRequest, call: Call) -> wire.DescribeClientQuotasResponse:
    wanted = [Wanted(one.entity_type, one.match_type, one.match) for one in request.components]
    try:
        found = call.context.quota_admin.find(wanted, strict=request.strict)
    except AdminError as e:
        return wire.DescribeClientQuotasResponse(error_code=e.code, error_message=str(e))
    return wire.DescribeClientQuotasResponse(
        entries=[
            wire.QuotaEntry(
                entity=[wire.QuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity.items()],
                values=[wire.QuotaValue(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in found
        ]
    )
