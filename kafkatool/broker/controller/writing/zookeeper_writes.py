"""All that the controller writes to ZooKeeper, each write bound to its own controller epoch (CTL-15, Z-38, Z-42).

A transaction begins with a version check of ``/controller_epoch``: once another controller has raised the epoch, not
one more write of the deposed one takes effect. Many independent writes share a transaction; when it is refused, the
write to blame is taken out and the rest is tried again.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from kafkatool.core.errors import (
    ControllerFencedError,
    NoNodeError,
    NotEmptyError,
    VersionConflictError,
    ZooKeeperError,
)
from kafkatool.core.model.values import LeaderAndIsr, PartitionState, TopicPartition
from kafkatool.core.zookeeper.cluster_view import States, read_all_states
from kafkatool.core.zookeeper.session import Check, Create, Delete, Node, Op, SetData, TransactionError, ZooKeeper
from kafkatool.core.zookeeper.znodes import ControllerEpochZnode, PartitionStateZnode, PartitionsZnode, PartitionZnode

log = logging.getLogger(__name__)

_MAX_ROUNDS = 100  # of reading again after a conflict; each needs another writer to come in between
_MAX_OPERATIONS = 500  # of one transaction; ZooKeeper takes more, but then one refusal costs more
_MAX_BYTES = 400_000  # of one transaction, well below ZooKeeper's packet limit of 1 MiB
_PIECES = 8  # a refused transaction is tried again in so many
_DELETE_PASSES = 10  # of a recursive delete while others create below it

Outcome = list[int | None] | ZooKeeperError


class FencedZooKeeper:
    """The writes of one controller term. ``is_over`` turns true when the term ends, whatever is under way."""

    def __init__(self, zookeeper: ZooKeeper, epoch_version: int, is_over: Callable[[], bool]) -> None:
        self._zookeeper = zookeeper
        self._check = Check(ControllerEpochZnode.PATH, epoch_version)
        self._is_over = is_over

    # --- reads --------------------------------------------------------------------------------------------------

    def read_states(self, partitions: Iterable[TopicPartition]) -> States:
        """Read the state nodes of those partitions in one pipelined pass."""
        return read_all_states(self._zookeeper, partitions)

    # --- writes -------------------------------------------------------------------------------------------------

    def commit(self, ops: Sequence[Op]) -> list[int | None]:
        """Write all or nothing. Raises ControllerFencedError, else the failed operation's own error."""
        (outcome,) = self.commit_groups([ops])
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        return outcome

    def commit_groups(self, groups: Sequence[Sequence[Op]]) -> list[Outcome]:
        """Write each group all or nothing, independent of the others; returns one outcome per group, in order.

        Raises ControllerFencedError as soon as the epoch is no longer ours.
        """
        outcomes: dict[int, Outcome] = {}
        transactions = _pack(groups)
        while transactions:
            if self._is_over():
                raise ControllerFencedError("this controller's term is over")
            operations = [[self._check, *(op for g in members for op in groups[g])] for members in transactions]
            again: list[list[int]] = []
            for members, outcome in zip(transactions, self._zookeeper.commit_many(operations), strict=True):
                if not isinstance(outcome, TransactionError):
                    position = 1
                    for group in members:
                        outcomes[group] = outcome[position : position + len(groups[group])]
                        position += len(groups[group])
                    continue
                culprit = self._culprit(members, groups, outcome)
                outcomes[culprit] = outcome.cause
                rest = [g for g in members if g != culprit]
                size = -(-len(rest) // _PIECES) or 1
                again += [rest[i : i + size] for i in range(0, len(rest), size)]
            transactions = again
        return [outcomes[g] for g in range(len(groups))]

    @staticmethod
    def _culprit(members: Sequence[int], groups: Sequence[Sequence[Op]], error: TransactionError) -> int:
        if error.index == 0:
            raise ControllerFencedError(f"another controller has raised {ControllerEpochZnode.PATH}") from error
        position = 1
        for group in members:
            position += len(groups[group])
            if error.index < position:
                return group
        raise AssertionError(f"operation {error.index} is in no group")

    def create_states(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> dict[TopicPartition, Outcome]:
        """Make first state nodes, with their empty parents (Z-15). One that exists is not overwritten (CTL-74)."""
        topics = list(dict.fromkeys(p.topic for p in states))
        parents = self._zookeeper.children_many([PartitionsZnode.path(t) for t in topics])
        missing = [t for t, children in zip(topics, parents, strict=True) if children is None]
        self.commit_groups([[Create(PartitionsZnode.path(t))] for t in missing])
        existing = {t: set(children or ()) for t, children in zip(topics, parents, strict=True)}
        groups: list[list[Op]] = []
        for partition, state in states.items():
            create: list[Op] = [Create(PartitionStateZnode.path(partition), PartitionStateZnode.encode(state))]
            if str(partition.partition) not in existing[partition.topic]:
                create.insert(0, Create(PartitionZnode.path(partition)))
            groups.append(create)
        return dict(zip(states, self.commit_groups(groups), strict=True))

    def update_states(
        self, states: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, int | ZooKeeperError]:
        """Write each state on the version given with it (Z-17); returns the new version, or the error (Z-38)."""
        groups = [
            [SetData(PartitionStateZnode.path(p), PartitionStateZnode.encode(s.leader_and_isr), s.version)]
            for p, s in states.items()
        ]
        return {
            partition: outcome if isinstance(outcome, ZooKeeperError) else outcome[0] or 0
            for partition, outcome in zip(states, self.commit_groups(groups), strict=True)
        }

    def change_states(
        self,
        partitions: Iterable[TopicPartition],
        decide: Callable[[Collection[TopicPartition], States], Mapping[TopicPartition, PartitionState]],
        *,
        what: str,
    ) -> Iterator[dict[TopicPartition, PartitionState]]:
        """Read, decide, write on the version read, and again where somebody else was faster (CTL-41, 42; Z-38).

        ``decide`` gets the partitions asked for and what is there of them; what it leaves out is left as it is. Yields what
        was written, round by round. ``what`` is for the log: what could not be done where a write failed.
        """
        pending = list(partitions)
        for _ in range(_MAX_ROUNDS):
            if not pending:
                return
            new = decide(pending, self.read_states(pending))
            written: dict[TopicPartition, PartitionState] = {}
            pending = []
            for partition, outcome in self.update_states(new).items():
                if isinstance(outcome, VersionConflictError):
                    pending.append(partition)
                elif isinstance(outcome, ZooKeeperError):
                    log.error("partition %s: %s: %s", partition, what, outcome)
                else:
                    written[partition] = PartitionState(new[partition].leader_and_isr, outcome)
            yield written

    def delete(self, paths: Iterable[str]) -> None:
        """Delete nodes without children; what is gone already is fine (Z-42)."""
        self._delete([Delete(path) for path in paths])

    def _delete(self, deletions: Iterable[Delete]) -> None:
        for outcome in self.commit_groups([[deletion] for deletion in deletions]):
            if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NoNodeError):
                raise outcome

    def delete_as_read(self, nodes: Mapping[str, Node | None]) -> None:
        """Delete nodes only as long as they are those that were read: one made or written since is another's request.

        A version does not tell a node from its successor, as each begins with 0. So it is looked at again just before,
        and a deletion whose reply was lost is not repeated on the successor (Z-40).
        """
        read = {path: node for path, node in nodes.items() if node is not None}
        now = self._zookeeper.get_many(list(read))
        same = [
            Delete(path, node.version, node.czxid)
            for (path, node), found in zip(read.items(), now, strict=True)
            if found is not None and found.czxid == node.czxid
        ]
        for deletion, outcome in zip(same, self.commit_groups([[d] for d in same]), strict=True):
            if isinstance(outcome, VersionConflictError):
                log.info("znode %s stays: it was written since it was read", deletion.path)
            elif isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NoNodeError):
                raise outcome

    def delete_tree(self, path: str) -> None:
        """Delete a node and all below it, children first, tolerating that children come and go meanwhile (Z-42).

        A node of that path made after the call stays, also where the reply to the deletion is lost.
        """
        root = self._zookeeper.get(path)
        for _ in range(_DELETE_PASSES):
            levels = [[path]]
            while levels[-1]:
                below = self._zookeeper.children_many(levels[-1])
                levels.append([f"{p}/{c}" for p, names in zip(levels[-1], below, strict=True) for c in names or ()])
            try:
                for level in reversed(levels[1:]):
                    self.delete(level)
                if root is not None:
                    self._delete([Delete(path, czxid=root.czxid)])
                return
            except NotEmptyError:
                continue
        raise NotEmptyError(f"znode {path} could not be deleted: something keeps creating nodes below it")

    def change(self, path: str, new_data: Callable[[bytes], bytes | None]) -> bool:
        """Read, change, write on the version read, again on conflict. None deletes the node. False: no such node."""
        while True:
            node = self._zookeeper.get(path)
            if node is None:
                return False
            data = new_data(node.data)
            if data == node.data:
                return True
            try:
                # an unanswered deletion must not be repeated on the operator's next request, of the same version (Z-40)
                gone = Delete(path, node.version, node.czxid)
                self.commit([gone if data is None else SetData(path, data, node.version, len(node.data))])
                return True
            except VersionConflictError:
                continue  # somebody changed it meanwhile: read again
            except NoNodeError:
                return False


def _pack(groups: Sequence[Sequence[Op]]) -> list[list[int]]:
    """Return the indexes of groups, together as many as fit into one transaction."""
    packed: list[list[int]] = []
    operations = size_bytes = 0
    for index, group in enumerate(groups):
        group_bytes = sum(len(op.path) + 60 + len(getattr(op, "data", b"")) for op in group)
        if (
            not packed
            or operations + len(group) > _MAX_OPERATIONS
            or (size_bytes + group_bytes > _MAX_BYTES and operations)
        ):
            packed.append([])
            operations = size_bytes = 0
        packed[-1].append(index)
        operations += len(group)
        size_bytes += group_bytes
    return packed
