"""The description of a group that administrators get (GRP-58, GRP-59; Kafka 2.3.1 group/GroupCoordinator.scala)."""

from typing import NamedTuple

from kafkatool.broker.groups.group import Group
from kafkatool.broker.groups.states import GroupState
from kafkatool.core.protocol.messages.error_codes import ErrorCode


class MemberDescription(NamedTuple):
    """One member; ``subscription`` and ``assignment`` are empty unless the group is stable."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class GroupDescription(NamedTuple):
    """One group. ``state`` is empty beside an error."""

    error: ErrorCode
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[MemberDescription, ...] = ()


UNKNOWN_GROUP = GroupDescription(ErrorCode.NONE, GroupState.DEAD.value)


class ListedGroups(NamedTuple):
    """Groups by id with their protocol type, "" for a simple group, and state. With 14: more are being loaded."""

    error: ErrorCode
    groups: tuple[tuple[str, str, str], ...]


def describe(group: Group) -> GroupDescription:
    """Describe the group as it is now; its lock is held."""
    stable = group.state is GroupState.STABLE
    protocol = group.protocol or "" if stable else ""
    members = tuple(
        MemberDescription(
            member.id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.members.values()
    )
    return GroupDescription(ErrorCode.NONE, group.state.value, group.protocol_type or "", protocol, members)
