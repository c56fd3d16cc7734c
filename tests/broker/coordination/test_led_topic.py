"""The partitions that a coordinator owns, over a broker's real replicas, which can go while it is told of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkatool.broker.coordination.led_topic import LedTopic
from kafkatool.broker.coordination.ownership import Ownership, Term
from kafkatool.broker.replication.partition.partition import Partition
from kafkatool.broker.storage.log.log import Log
from kafkatool.core.protocol.messages.stop_replica import StopReplicaRequest
from tests.broker.replication.world import TP, Clock, World, world


class Coordinator:
    """What becomes of its topic: the terms that were taken over, and how often one ended."""

    def __init__(self, on: World) -> None:
        self.on = on
        self.taken_over: list[Term] = []
        self.unloads = 0
        self.topic = LedTopic(TP.topic, on.manager, on.scheduler, what="test", load=self._load, unload=self._unload)

    def _load(self, _log: Log, term: Term) -> None:
        if self.topic.partitions.finish_load(term):
            self.taken_over.append(term)

    def _unload(self, _number: int) -> None:
        self.unloads += 1

    def told(self, *, leads: Partition | None = None, follows: Partition | None = None) -> None:
        self.topic.on_leadership_change([leads] if leads else [], [follows] if follows else [])
        self.on.scheduler.run()

    def told_gone(self) -> None:
        self.topic.on_partitions_stopped([TP])

    @property
    def state(self) -> Ownership | None:
        return self.topic.partitions.get(TP.partition)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    dirs = ",".join(str(tmp_path / name) for name in ("first", "second"))
    with world(tmp_path, clock=Clock(), log_dirs=dirs) as on:
        yield Coordinator(on)


def _delete(on: World) -> None:
    on.manager.control.stop_replicas(
        StopReplicaRequest(controller_id=9, controller_epoch=1, delete_partitions=True, partitions=[TP])
    )


@pytest.mark.spec("GRP-6", "GRP-15", "TXN-7")
def test_a_topic_made_anew_is_led_like_any_though_its_epochs_begin_anew(coordinator: Coordinator) -> None:
    coordinator.told(leads=coordinator.on.lead(epoch=5))
    _delete(coordinator.on)
    coordinator.told_gone()
    assert coordinator.state is None and coordinator.unloads == 1
    coordinator.told(leads=coordinator.on.lead(epoch=0))
    assert coordinator.state is Ownership.OWNED
    assert [term.epoch for term in coordinator.taken_over] == [5, 0]


@pytest.mark.spec("GRP-6", "GRP-7", "GRP-15")
@pytest.mark.parametrize("told_gone", ["in between", "late"])
@pytest.mark.parametrize("epoch", [0, 5])
def test_a_stray_ends_its_own_term_and_not_that_of_the_topic_made_anew(
    coordinator: Coordinator, told_gone: str, epoch: int
) -> None:
    coordinator.told(leads=coordinator.on.lead(epoch=epoch))
    coordinator.on.manager.control.set_aside([TP])
    if told_gone == "in between":
        coordinator.told_gone()
    coordinator.told(leads=coordinator.on.lead(epoch=0))
    if told_gone == "late":
        coordinator.told_gone()
    assert coordinator.state is Ownership.OWNED and coordinator.unloads == 1
    old, new = coordinator.taken_over
    assert old != new == coordinator.topic.partitions.owned_since(TP.partition)


@pytest.mark.spec("GRP-7", "GRP-15")
def test_a_stray_that_was_led_ends_when_the_topic_made_anew_is_followed(coordinator: Coordinator) -> None:
    coordinator.told(leads=coordinator.on.lead(epoch=5))
    coordinator.on.manager.control.set_aside([TP])
    coordinator.told(follows=coordinator.on.follow(epoch=0))
    assert coordinator.state is None and coordinator.unloads == 1
    coordinator.told_gone()
    coordinator.told(leads=coordinator.on.lead(epoch=1, version=1))
    assert coordinator.state is Ownership.OWNED


@pytest.mark.spec("GRP-15", "BRK-146", "TXN-13")
@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("order", ["failure told first", "role told first"])
def test_a_log_dir_that_fails_while_roles_are_taken_over_leaves_nothing_led(
    coordinator: Coordinator, order: str, role: str
) -> None:
    on = coordinator.on
    partition = on.lead(epoch=3) if role == "leader" else on.follow(epoch=3)
    on.fail_disk(partition.log.directory.parent)
    assert on.manager.partitions.is_offline(TP) and not partition.is_leader
    if order == "failure told first":
        coordinator.told_gone()
    coordinator.told(**{"leads" if role == "leader" else "follows": partition})
    if order == "role told first":
        coordinator.told_gone()
    assert coordinator.state is None and coordinator.taken_over == []
    on.manager.partitions.remove(TP)  # as by a restart with the disk mended: it is online again
    coordinator.told(leads=on.lead(epoch=4))
    assert coordinator.state is Ownership.OWNED, "no epoch of the one that was lost stands in its way"


@pytest.mark.spec("GRP-15", "BRK-146")
def test_a_log_dir_that_fails_after_roles_were_told_ends_what_it_bore(coordinator: Coordinator) -> None:
    on = coordinator.on
    partition = on.lead(epoch=3)
    coordinator.topic.on_leadership_change([partition], [])
    assert coordinator.state is Ownership.LOADING
    on.manager.on_offline(coordinator.topic.on_partitions_stopped)
    on.fail_disk(partition.log.directory.parent)
    assert coordinator.state is None and coordinator.unloads == 1
