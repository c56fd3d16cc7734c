"""What is done to topics meanwhile, and with which brokers: functions of the seed. One cluster shows that it is done."""

import itertools
import threading
from collections import Counter
from pathlib import Path

import pytest

from kafkatool.core.zookeeper.cluster_view import read_cluster
from kafkatool.core.zookeeper.znodes import ConfigZnode, TopicZnode
from tests.faults.world import BROKERS
from tests.histories import nemesis, upkeep
from tests.histories.analyser.notation import HEADER
from tests.histories.chores import Chore, Kind, chores_of, moves_of
from tests.histories.clients import facts
from tests.histories.clients.client import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, Cell
from tests.histories.clients.librdkafka import Librdkafka
from tests.histories.clients.values import topic_of
from tests.histories.history import OK, RECORD_KEYS, read_file
from tests.histories.matrix import CLIENTS, broker_options, cell_of, clients_of, fitted, safe, topic_configs, unsafe
from tests.histories.run import await_all, header
from tests.histories.upkeep import FORCING, Upkeep
from tests.histories.workload import Keys
from tests.histories.writer import HistoryWriter
from tests.waiting import eventually

_SEEDS = range(4000)
_DRAWN = [chores_of(seed, number) for seed in range(100) for number in range(40)]


@pytest.mark.spec("HIS-41")
def test_a_tenth_of_the_topics_is_moved_or_elected_and_a_twentieth_loses_records_by_the_seed() -> None:
    assert [chores_of(seed, 3) for seed in range(100)] == [chores_of(seed, 3) for seed in range(100)]
    assert [chores_of(seed + 100, number) for seed in range(100) for number in range(40)] != _DRAWN
    kinds = Counter(chore.kind for chores in _DRAWN for chore in chores)
    assert set(kinds) == {"reassign", "elect", "delete", "add partitions", "delete group"}
    assert 0.08 < (kinds["reassign"] + kinds["elect"]) / len(_DRAWN) < 0.12
    assert 0.6 < kinds["reassign"] / kinds["elect"] < 1.6
    assert 0.04 < kinds["delete"] / len(_DRAWN) < 0.06
    assert all(0 < chore.at < 1 for chores in _DRAWN for chore in chores), "while its keys take values"
    assert all(chores == sorted(chores, key=lambda chore: chore.at) for chores in _DRAWN)


@pytest.mark.spec("HIS-41", "HIS-45")
def test_of_compacted_topics_nothing_is_deleted_and_the_rest_is_as_often() -> None:
    kinds = Counter(c.kind for seed in range(100) for n in range(40) for c in chores_of(seed, n, compacted=True))
    assert set(kinds) == {"reassign", "elect", "add partitions", "force compaction", "delete group"}
    assert 0.08 < (kinds["reassign"] + kinds["elect"]) / 4000 < 0.12
    assert 0.04 < kinds["force compaction"] / 4000 < 0.06


@pytest.mark.spec("HIS-45")
@pytest.mark.parametrize("compacted", [False, True])
def test_a_twentieth_of_the_topics_gets_a_partition_more_and_another_one_has_a_group_that_is_deleted(
    compacted: bool,
) -> None:
    drawn = [chores_of(seed, n, compacted=compacted) for seed in range(100) for n in range(40)]
    kinds = Counter(chore.kind for chores in drawn for chore in chores)
    assert 0.04 < kinds["add partitions"] / len(drawn) < 0.06
    assert 0.04 < kinds["delete group"] / len(drawn) < 0.06
    assert all(len({chore.kind for chore in chores}) == len(chores) for chores in drawn), "each once"


@pytest.mark.spec("HIS-41")
def test_replicas_go_to_two_brokers_and_come_back_to_all() -> None:
    drawn = {moves_of(Chore("reassign", 0.5, salt)) for salt in range(300)}
    assert all(len(set(there)) == 2 and set(back) == set(BROKERS) for there, back in drawn)
    assert {there for there, _ in drawn} == {(a, b) for a in BROKERS for b in BROKERS if a != b}
    assert len({back for _, back in drawn}) == 6


@pytest.mark.spec("HIS-41", "HIS-44")
def test_a_cell_is_drawn_by_its_seed_with_each_part_as_often_as_it_should_come() -> None:
    cells = [cell_of(seed) for seed in _SEEDS]
    assert cells == [cell_of(seed) for seed in _SEEDS]
    count = len(cells)
    parts = Counter(part for cell in cells for part in (cell.isolation, cell.acks))
    assert abs(parts["read_uncommitted"] / count - 1 / 8) < 0.025
    assert abs(parts["1"] / count - 1 / 10) < 0.025
    ordinary = [cell for cell in cells if cell.acks == "all"]
    halves = Counter(part for cell in ordinary for part in (cell.via, cell.cleanup))
    assert set(halves) == {"assign", "subscribe", "delete", "compact"}
    assert all(abs(times / len(ordinary) - 1 / 2) < 0.04 for times in halves.values())
    guarantees = Counter(cell.guarantee for cell in ordinary)
    assert set(guarantees) == {"plain", "idempotent", "transactional"}
    assert all(abs(times / len(ordinary) - 1 / 3) < 0.04 for times in guarantees.values())
    assert len({(c.via, c.guarantee, c.isolation, c.cleanup) for c in ordinary}) == 2 * 3 * 2 * 2


@pytest.mark.spec("HIS-13", "HIS-44")
def test_a_seed_draws_one_of_the_clients_that_play_its_cell() -> None:
    played: dict[tuple[str, str, str], Counter[str]] = {}
    for cell in map(cell_of, _SEEDS):
        assert cell.client in clients_of(cell)
        if cell.acks == "all":
            played.setdefault((cell.via, cell.guarantee, cell.cleanup), Counter())[cell.client] += 1
    assert len(played) == 2 * 3 * 2
    for (via, guarantee, cleanup), counts in played.items():
        in_group_and_transactions = via == "subscribe" and guarantee == "transactional"
        by_kafka_python = via == "assign" and guarantee != "transactional" and cleanup == "delete"
        wanted = {LIBRDKAFKA} | ({AIOKAFKA} if not in_group_and_transactions else set())
        wanted |= {KAFKA_PYTHON} if by_kafka_python else set()
        assert counts.keys() == wanted
        assert all(abs(times / counts.total() - 1 / len(wanted)) < 0.12 for times in counts.values())


@pytest.mark.spec("HIS-13")
@pytest.mark.parametrize("client", CLIENTS)
def test_a_cell_is_fitted_to_a_client_in_as_little_as_it_does_not_play(client: str) -> None:
    for cell in map(cell_of, _SEEDS):
        own = fitted(cell, client)
        assert client in clients_of(own)
        assert own == fitted(own, client)
        assert own == cell._replace(client=client) or client not in clients_of(cell)
        assert (own.isolation, own.acks, own.min_isr, own.unclean) == (cell.isolation, *cell[4:5], *cell[6:])


@pytest.mark.spec("HIS-44")
def test_a_tenth_may_lose_what_was_acknowledged_and_no_other_does() -> None:
    for seed in _SEEDS:
        cell = cell_of(seed)
        losses = cell.acks, cell.min_isr, cell.unclean
        assert losses in (("all", 2, False), ("1", 1, True))
        assert safe(cell) == cell._replace(acks="all", min_isr=2, unclean=False)
        assert unsafe(cell) == Cell("assign", "plain", cell.isolation, cell.client, "1", min_isr=1, unclean=True)
        assert losses[0] == "all" or cell == unsafe(cell)


@pytest.mark.spec("HIS-44")
def test_brokers_and_topics_are_told_of_their_cell_and_so_is_the_header() -> None:
    told = broker_options(Cell("assign", "plain"))
    assert (told["min.insync.replicas"], told["unclean.leader.election.enable"]) == ("2", "false")
    told = broker_options(unsafe(Cell("assign", "plain")))
    assert (told["min.insync.replicas"], told["unclean.leader.election.enable"]) == ("1", "true")
    assert topic_configs(Cell("assign", "plain")).keys() == {"segment.bytes"}
    assert int(topic_configs(Cell("assign", "plain"))["segment.bytes"]) < 256 * 100, "a key has several segments"
    assert topic_configs(Cell("assign", "plain", cleanup="compact"))["cleanup.policy"] == "compact"
    for cell, options in (
        (Cell("assign", "plain"), ("all", 2, False, "delete")),
        (Cell("assign", "plain", cleanup="compact"), ("all", 2, False, "compact")),
        (unsafe(Cell("subscribe", "transactional", cleanup="compact")), ("1", 1, True, "delete")),
    ):
        own = cell.options
        assert (own["acks"], own["min_isr"], own["unclean"], own["cleanup"]) == options


@pytest.mark.spec("HIS-41")
def test_chores_come_due_once_as_values_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chores = {0: [Chore("elect", 0.25, 0), Chore("delete", 0.5, 0)], 2: [Chore("reassign", 0.5, 0)]}
    monkeypatch.setattr(upkeep, "chores_of", lambda _seed, number, **_: list(chores.get(number, [])))
    keys = Keys()
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        at_work = Upkeep(None, 1, keys, writer, compacted=False)  # type: ignore[arg-type]
        assert at_work.due() == []
        for key, values, due in ((0, 63, []), (1, 1, [(0, chores[0][0])]), (4, 128, [(2, chores[2][0])]), (5, 9, [])):
            for _ in range(values):
                keys.draw(key)
            assert at_work.due() == due
        for _ in range(200):
            keys.draw(1)
        assert at_work.due() == [(0, chores[0][1])]
        assert at_work.due() == []


@pytest.mark.spec("HIS-41", "HIS-43")
def test_of_chores_that_come_due_together_none_is_begun_once_the_run_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "chores_of", lambda *_, **__: [Chore("elect", 0.0, 0)])
    stop, done = threading.Event(), list[int]()

    def ends_the_run(_: Upkeep, number: int, __: Chore) -> None:
        done.append(number)
        stop.set()

    monkeypatch.setattr(Upkeep, "do", ends_the_run)
    with HistoryWriter(tmp_path / "h", HEADER) as writer:
        Upkeep(None, 1, Keys(), writer, compacted=False).go_on(stop)  # type: ignore[arg-type]
    assert done == [0]


@pytest.mark.spec("HIS-43")
def test_who_has_not_ended_when_everything_is_to_be_read_ends_the_run() -> None:
    over = threading.Event()
    ended, at_work = threading.Thread(target=str), threading.Thread(target=over.wait, name="upkeep")
    ended.start()
    at_work.start()
    with pytest.raises(RuntimeError, match="upkeep has not ended"):
        await_all([ended, at_work], 0.5)
    over.set()
    await_all([ended, at_work], 120)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("HIS-41", "HIS-45", "HIS-12")
def test_chores_are_done_and_each_begins_and_ends_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Kind] = ["add partitions", "reassign", "elect", "delete", "delete group"]
    monkeypatch.setattr(upkeep, "chores_of", lambda *_, **__: [Chore(kind, 0.01, 5) for kind in kinds])
    for module in (upkeep, facts):  # the deletion has to be answered, and a busy machine may stand still
        monkeypatch.setattr(module, "_TIMEOUT_S", 120.0)
    forget, had = upkeep.forget_group, list[object]()

    def noted(bootstrap: str, group: str) -> None:
        had.append(facts.ask_committed(bootstrap, group, [2, 3]))
        forget(bootstrap, group)

    monkeypatch.setattr(upkeep, "forget_group", noted)
    cell = Cell("assign", "idempotent")
    stage, keys = nemesis.OurStage(tmp_path / "cluster", options=broker_options(cell)), Keys()
    try:
        for number in range(2):
            nemesis.create_topic(stage, topic_of(2 * number), 2, topic_configs(cell))
        nemesis.settle(stage)
        client = Librdkafka(stage.bootstrap, cell, 1, patient=True)
        sent = client.send(keys.draw(*[2] * 20))
        assert {outcome for _, outcome in sent} == {OK}
        with HistoryWriter(tmp_path / "h", header(1, stage, cell, 0)) as writer:
            at_work = Upkeep(stage, 1, keys, writer, compacted=False)
            for number, chore in at_work.due():
                assert number == 1
                at_work.do(number, chore)
        topic = topic_of(2)
        node = stage.zk.get(TopicZnode.path(topic))
        assert node is not None
        _, back = moves_of(Chore("reassign", 0.01, 5))
        assignment = TopicZnode.decode(topic, node.data).assignment
        assert (assignment[0], assignment[1]) == (back, back)
        assert set(assignment) == {0, 1, 2} and set(assignment[2]) == set(BROKERS), "the partition that was added"
        states = {p.partition: s.leader_and_isr for p, s in read_cluster(stage.zk).states.items() if p.topic == topic}
        assert states[0].leader == states[1].leader == back[0], "the preferred one"
        assert states[2].leader in BROKERS
        assert facts.ask_ends(stage.bootstrap, [2, 3]) == {2: (10, 20), 3: (0, 0)}
        assert had[0] == {2: 1, 3: 1}, "what the group had committed"
        assert facts.ask_committed(stage.bootstrap, "short-lived-1", [2, 3]) == {2: None, 3: None}
        client.close()
    finally:
        stage.down()
    history = read_file(tmp_path / "h")
    lines = [(line["value"]["begins"], line["value"]["faults"]) for line in history.faults]
    assert lines == [(begins, [f"{kind} {topic}"]) for kind in kinds for begins in (True, False)]
    assert [(o.f, o.type, o.value) for o in history.operations] == [("delete", OK, {2: 10, 3: 0})]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.spec("HIS-45", "HIS-30")
def test_compaction_is_forced_up_to_what_is_sent_meanwhile_and_then_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own configs the topic would keep all in a segment that is never compacted."""
    monkeypatch.setattr(facts, "_TIMEOUT_S", 120.0)
    cell = Cell("assign", "idempotent", cleanup="compact")
    stage, values = nemesis.OurStage(tmp_path / "cluster", options=broker_options(cell)), itertools.count(1)
    own = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"}
    at_rest = ConfigZnode.path("topics", topic_of(0))
    amid: list[dict[str, str]] = []

    def configs() -> dict[str, str]:
        node = stage.zk.get(at_rest)
        assert node is not None
        return ConfigZnode.decode(at_rest, node.data)

    try:
        nemesis.create_topic(stage, topic_of(0), 2, own)
        nemesis.settle(stage)
        client = Librdkafka(stage.bootstrap, cell, 1, patient=True)
        sent = client.send([(0, next(values)) for _ in range(100)])
        assert {outcome for _, outcome in sent} == {OK}

        def is_compacted() -> bool:
            """Send one more, as only then a segment is rolled; tell whether of the first ones only the newest are left."""
            client.send([(0, next(values))])
            left = _read(client, 0, facts.ask_ends(stage.bootstrap, [0])[0][1])
            return sum(value <= 100 for value in left if value is not None) <= RECORD_KEYS

        def until_compacted(_: float) -> None:
            amid.append(configs())
            eventually(is_compacted, "compaction")

        monkeypatch.setattr(upkeep, "pass_time", until_compacted)
        with HistoryWriter(tmp_path / "h", header(1, stage, cell, 0)) as writer:
            Upkeep(stage, 1, Keys(compacted=True), writer, compacted=True).do(0, Chore("force compaction", 0.5, 1))
        assert amid == [{**own, **FORCING}]
        assert configs() == own
        client.close()
    finally:
        stage.down()
    lines = [(line["value"]["begins"], line["value"]["faults"]) for line in read_file(tmp_path / "h").faults]
    assert lines == [(begins, [f"force compaction {topic_of(0)}"]) for begins in (True, False)]


def _read(client: Librdkafka, key: int, end: int) -> list[int | None]:
    """Read a key from its start to that offset."""
    found: list[int | None] = []

    def is_read() -> bool:
        found.extend(value for _, value in client.poll().get(key, ()))
        return client.positions.get(key, 0) >= end

    client.assign([key], from_start=True)
    eventually(is_read, f"key {key} to be read")
    return found
