"""The expiry of committed offsets and of groups without any (GRP-54, 55)."""

from kafkatool.broker.groups.group import Group
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.model.values import TopicPartition


def expire_group(group: Group, now_ms: float, retention_ms: float) -> tuple[list[TopicPartition], bool]:
    """Take out expired offsets; return them, and whether the group itself became Dead with nothing left.

    ``now_ms`` is the wall's, as stamps are.
    """
    if group.state is not GroupState.EMPTY:
        return [], False
    simple = not group.protocol_type
    gone = list(group.offsets.expire(now_ms, retention_ms, group.state_timestamp_ms, simple=simple))
    dead = group.offsets.empty and not group.pending
    if dead:
        group.die()
    return gone, dead
