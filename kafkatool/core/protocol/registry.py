"""All APIs whose messages this package can read and write. What a broker serves is decided by its handlers."""

from kafkatool.core.protocol import (
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    update_metadata,
)
from kafkatool.core.protocol.schema import Api

APIS: dict[int, Api] = {
    module.API.key: module.API
    for module in (
        api_versions,
        controlled_shutdown,
        create_partitions,
        create_topics,
        delete_groups,
        delete_topics,
        describe_configs,
        describe_groups,
        describe_log_dirs,
        fetch,
        find_coordinator,
        heartbeat,
        init_producer_id,
        join_group,
        leader_and_isr,
        leave_group,
        list_groups,
        list_offsets,
        metadata,
        offset_commit,
        offset_fetch,
        offset_for_leader_epoch,
        produce,
        stop_replica,
        sync_group,
        update_metadata,
    )
}
"""By key."""
