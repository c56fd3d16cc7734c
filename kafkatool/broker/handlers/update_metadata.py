"""UpdateMetadata (key 6), versions 0-5: the cluster as the controller tells it, for the metadata cache (BRK-112, 113)."""

from operator import attrgetter

from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages.update_metadata import API, UpdateMetadataRequest, UpdateMetadataResponse


@Served(
    API,
    versions=(0, 5),
    asks=(cluster(Operation.CLUSTER_ACTION),),
    between_brokers=attrgetter("controller_id"),
    from_controller=True,
)
def handle(request: UpdateMetadataRequest, call: Call) -> UpdateMetadataResponse:
    """Take the metadata over, or refuse it; the group coordinator forgets the offsets of deleted partitions."""
    context = call.context
    update = context.replica_manager.control.update_metadata(
        request, context.on_leadership_change, correlation_id=call.header.correlation_id
    )
    if update.removed:
        context.groups.on_partitions_deleted(update.removed)
    return UpdateMetadataResponse(error_code=update.error)
