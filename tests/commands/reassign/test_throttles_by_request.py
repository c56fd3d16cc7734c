"""Throttles of ``kt reassign --bootstrap-server``: none is left by what never began, none is taken from what goes on."""

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pytest

from kafkatool.commands.shared.run_progress import RunProgressLine
from kafkatool.core.operations.requests import planned, reassignments, throttles
from kafkatool.core.protocol.messages import alter_partition_reassignments as altering
from kafkatool.core.protocol.messages import describe_log_dirs, incremental_alter_configs
from kafkatool.core.protocol.messages import list_partition_reassignments as listing
from kafkatool.core.protocol.messages.alter_configs import AlterConfigsResult
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.commands.reassign.memory_cluster import Cluster

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def plan_of(path: Path, moves: dict[int, list[int]], dirs: Sequence[str] = ()) -> Path:
    file = path / "plan.json"
    named = {"log_dirs": list(dirs)} if dirs else {}
    entries = [{"topic": "t", "partition": p, "replicas": r, **named} for p, r in moves.items()]
    file.write_bytes(orjson.dumps({"version": 1, "partitions": entries}))
    return file


def set_now(cluster: Cluster) -> dict[tuple[int, str], dict[str, str]]:
    return {entity: config for entity, config in cluster.configs.items() if config}


def tell_nothing(_: Any) -> object:
    """As brokers answer who may not describe the cluster."""
    return describe_log_dirs.DescribeLogDirsResponse(results=[])


# --- what never began ------------------------------------------------------------------------------------------


@pytest.fixture
def standing(cluster: Cluster) -> dict[tuple[int, str], dict[str, str]]:
    """What is set before a run that begins nothing, and after it."""
    cluster.configs = {
        (4, "1"): {**dict.fromkeys(RATES, "77"), LOG_DIR_RATE: "5", "log.cleaner.threads": "2"},
        (2, "t"): {LEADERS: "*", "retention.ms": "5"},
    }
    return {entity: dict(config) for entity, config in cluster.configs.items()}


@pytest.mark.spec("ADM-34", "ADM-35", "RSN-23X")
@pytest.mark.parametrize("refused", ["each partition", "the request", "no controller", "a batch after a refused one"])
def test_a_run_that_begins_nothing_puts_back_the_throttles_it_found(
    cluster: Cluster, standing: Any, tmp_path: Path, hurried: Path, refused: str
) -> None:
    answer = cluster.brokers[0].answers[altering.API.key]
    not_permitted = altering.AlterPartitionReassignmentsResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[]
    )
    flags: list[object] = []
    if refused == "each partition":
        cluster.refusals = dict.fromkeys((0, 2), (ErrorCode.POLICY_VIOLATION, "not today"))
    elif refused == "the request":
        cluster.brokers[0].answers[altering.API.key] = lambda _: not_permitted
    elif refused == "no controller":

        def elected_no_more(request: Any) -> object:
            for broker in cluster.brokers:
                broker.controller_id = -1
            return cluster.set(request)

        cluster.brokers[0].answers[incremental_alter_configs.API.key] = elected_no_more
        cluster.brokers[0].answers[altering.API.key] = lambda _: altering.AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.NOT_CONTROLLER, topics=[]
        )
    else:
        cluster.refusals = {0: (ErrorCode.POLICY_VIOLATION, "not today")}
        flags = ["--batch-partitions", 1]
        cluster.brokers[0].answers[altering.API.key] = lambda request: (
            answer(request) if len(cluster.asked("AlterPartitionReassignments")) == 1 else not_permitted
        )
    plan = plan_of(tmp_path, {0: [3, 2], 2: [3, 1]}, ["/data", "any"])
    rates = ["--throttle", 1000, "--replica-alter-log-dirs-throttle", 2000]
    found = cluster.run("execute", "--reassignment-json-file", plan, "--command-config", hurried, *rates, *flags)
    assert found.exit_code == 1 and not cluster.moving, found.output
    assert len(cluster.asked("IncrementalAlterConfigs")) > 4, "the throttle had been set"
    assert set_now(cluster) == standing
    assert "nothing was begun: the throttles are as they were before" in found.stderr
    assert "# look" not in found.stderr


@pytest.mark.spec("ADM-35", "RSN-23X")
def test_a_throttle_that_is_refused_at_one_place_is_taken_back_from_the_others(
    cluster: Cluster, standing: Any, tmp_path: Path
) -> None:
    def refuse(request: Any) -> object:
        if request.resources[0].resource_type == 4:
            return cluster.set(request)
        denied = AlterConfigsResult(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, resource_type=2, resource_name="t")
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[denied])

    for broker in cluster.brokers:
        broker.answers[incremental_alter_configs.API.key] = refuse
    found = cluster.run("execute", "--reassignment-json-file", plan_of(tmp_path, {0: [3, 2]}), "--throttle", 1000)
    assert found.exit_code == 1 and not cluster.asked("AlterPartitionReassignments")
    assert set_now(cluster) == standing
    assert "nothing was begun: the throttles are as they were before" in found.stderr


@pytest.mark.spec("ADM-35", "RSN-23X")
def test_a_throttle_that_cannot_be_taken_back_is_told_with_what_takes_it_off(cluster: Cluster, tmp_path: Path) -> None:
    broken = AlterConfigsResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, resource_type=4, resource_name="3")
    answers = cluster.brokers[2].answers

    def refuse(_: Any) -> object:
        answers[incremental_alter_configs.API.key] = lambda _: (
            incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[broken])
        )
        return altering.AlterPartitionReassignmentsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, topics=[]
        )

    cluster.brokers[0].answers[altering.API.key] = refuse
    plan = plan_of(tmp_path, {0: [3, 2]})
    found = cluster.run("execute", "--reassignment-json-file", plan, "--throttle", 1000)
    assert found.exit_code == 1 and set_now(cluster) == {(4, "3"): dict.fromkeys(RATES, "1000")}
    assert "nothing was begun, but the throttle could not be taken back everywhere: " in found.stderr
    assert (
        f"--verify --reassignment-json-file {plan}  # takes throttles off when nothing moves any more" in found.stderr
    )


@pytest.mark.spec("ADM-56", "RSN-23X")
@pytest.mark.parametrize("answer", ["none", "failed", "each failed"])
def test_what_may_have_begun_keeps_its_throttle_and_what_takes_it_off_is_told(
    cluster: Cluster, tmp_path: Path, hurried: Path, answer: str
) -> None:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    failed = altering.AlterPartitionReassignmentsResponse(error_code=code, topics=[])
    if answer == "each failed":
        cluster.refusals[0] = (code, "failed at it")
    else:
        cluster.brokers[0].answers[altering.API.key] = lambda _: failed if answer == "failed" else None
    plan = plan_of(tmp_path, {0: [3, 2]})
    flags = ["--reassignment-json-file", plan, "--command-config", hurried, "--throttle", 1000]
    found = cluster.run("execute", *flags)
    assert found.exit_code == 1 and "nothing was begun" not in found.stderr
    assert ("whether it was done is not known of t-0" in found.stdout) == (answer != "each failed")
    assert cluster.configs[4, "3"] == dict.fromkeys(RATES, "1000")
    assert "# look: what was begun goes on, under the throttle; takes that off when nothing moves" in found.stderr


@pytest.mark.spec("RSN-23X")
@pytest.mark.parametrize("while_", ["setting", "sending"])
def test_ctrl_c_leaves_no_throttle_or_says_what_takes_it_off(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, while_: str
) -> None:
    sent: list[object] = []
    carry_out = throttles.carry_out

    def interrupted(client: Any, changes: Any, **flags: Any) -> None:
        if sent:
            carry_out(client, changes, **flags)
        else:
            carry_out(client, changes[:2])
            sent.append(changes)
            raise KeyboardInterrupt

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    if while_ == "setting":
        monkeypatch.setattr(throttles, "carry_out", interrupted)
    else:
        monkeypatch.setattr(reassignments, "send", interrupt)
    plan = plan_of(tmp_path, {0: [3, 2]})
    found = cluster.run("execute", "--reassignment-json-file", plan, "--throttle", 1000)
    assert found.exit_code == 130 and not cluster.moving
    assert bool(set_now(cluster)) == (while_ == "sending")
    assert ("nothing was begun: the throttles are as they were before" in found.stderr) == (while_ == "setting")
    assert ("# look: what was begun goes on, under the throttle" in found.stderr) == (while_ == "sending")


@pytest.mark.spec("ADM-34", "ADM-35")
def test_what_was_begun_beside_what_was_refused_keeps_its_throttle(cluster: Cluster, tmp_path: Path) -> None:
    cluster.refusals = {2: (ErrorCode.POLICY_VIOLATION, "not today")}
    plan = plan_of(tmp_path, {0: [3, 2], 2: [3, 1]})
    found = cluster.run("execute", "--reassignment-json-file", plan, "--throttle", 1000)
    assert found.exit_code == 1 and list(cluster.moving) == [0]
    assert cluster.configs[4, "3"] == dict.fromkeys(RATES, "1000") and FOLLOWERS in cluster.configs[2, "t"]
    assert "nothing was begun" not in found.stderr


# --- at the end of a run that is waited for ---------------------------------------------------------------------


@pytest.mark.spec("ADM-35", "RSN-23X")
def test_a_run_that_is_waited_for_ends_with_what_stood_there_before(
    cluster: Cluster, standing: Any, tmp_path: Path
) -> None:
    cluster.ends_at_once = True
    cluster.lies_in[1, 0] = ("/data", None)
    plan = ["--reassignment-json-file", plan_of(tmp_path, {0: [3, 1]}, ["any", "/data"])]
    found = cluster.run("execute", *plan, "--throttle", 1000, "--replica-alter-log-dirs-throttle", 2000, "--wait")
    assert found.exit_code == 0, found.output
    assert len(cluster.asked("IncrementalAlterConfigs")) > 4 and set_now(cluster) == standing


@pytest.mark.spec("ADM-35", "ADM-38", "RSN-23X")
@pytest.mark.parametrize("left", ["lists of the topic", "lists of another", "moves"])
def test_throttles_that_an_earlier_move_left_do_not_come_back(cluster: Cluster, tmp_path: Path, left: str) -> None:
    cluster.ends_at_once = True
    cluster.others = ["u"]
    cluster.configs[4, "1"] = dict.fromkeys(RATES, "77")
    cluster.configs[2, "u" if left == "lists of another" else "t"] = {FOLLOWERS: "1:4"}
    if left == "moves":
        cluster.configs[2, "t"] = {LEADERS: "*"}
        cluster.moving[1] = ([4, 2, 1], [4], [1])
        alter = cluster.brokers[0].answers[altering.API.key]

        def ends(request: Any) -> object:
            cluster.moving.clear()
            return alter(request)

        cluster.brokers[0].answers[altering.API.key] = ends
    plan = plan_of(tmp_path, {0: [3, 2]})
    found = cluster.run("execute", "--reassignment-json-file", plan, "--throttle", 1000, "--wait", "--additional")
    assert found.exit_code == 0, found.output
    assert set_now(cluster) == ({(2, "t"): {LEADERS: "*"}} if left == "moves" else {})


# --- of a way back ---------------------------------------------------------------------------------------------


BEFORE = {(4, "1"): dict.fromkeys(RATES, "77"), (2, "t"): {LEADERS: "*", "retention.ms": "5"}}
THROTTLE = ("--throttle", 1000)


@pytest.fixture
def ended(cluster: Cluster, tmp_path: Path) -> Path:
    """A plan that has ended, under no throttle; an administrator has one of his own there."""
    cluster.replicas[0] = [3, 2]
    cluster.configs = {entity: dict(config) for entity, config in BEFORE.items()}
    (tmp_path / "plan.rollback.json").write_bytes(plan_of(tmp_path, {0: [1, 2]}).read_bytes())
    return plan_of(tmp_path, {0: [3, 2]})


@pytest.mark.spec("ADM-37", "RSN-23X")
@pytest.mark.parametrize("given", [THROTTLE, ()], ids=["given", "set already"])
def test_a_way_back_ends_with_the_throttle_that_stood_there_before(
    cluster: Cluster, ended: Path, given: tuple[object, ...]
) -> None:
    cluster.ends_at_once = True
    found = cluster.run("cancel", "--rollback", "--reassignment-json-file", ended, *given)
    assert found.exit_code == 0 and cluster.replicas[0] == [1, 2], found.output
    lists = [
        r.configs for _, q in cluster.asked("IncrementalAlterConfigs") for r in q.resources if r.resource_name == "t"
    ]
    assert [c.value for c in lists[0]] == ["0:2,0:3", "0:1"]
    assert set_now(cluster) == BEFORE and "it was taken off" not in found.stderr


def written(cluster: Cluster) -> list[tuple[int, str, Any]]:
    """Return what brokers were asked to change: by which broker, by which request, and its fields."""
    return [
        (b.id, name, orjson.loads(orjson.dumps(planned.fields_in_order(request, version), default=list)))
        for b in cluster.brokers
        for name, version, request in b.asked
        if name in ("IncrementalAlterConfigs", "AlterPartitionReassignments")
        and not getattr(request, "validate_only", False)
    ]


@pytest.mark.spec("ADM-20", "ADM-37", "RSN-23X")
@pytest.mark.parametrize("given", [THROTTLE, (), (*THROTTLE, "--preserve-throttles")], ids=["given", "set", "kept"])
def test_a_dry_run_of_a_way_back_shows_the_throttle_that_is_set_and_what_is_put_back(
    cluster: Cluster, ended: Path, given: tuple[object, ...]
) -> None:
    cluster.ends_at_once = True
    flags = ("--rollback", "--reassignment-json-file", ended, *given)
    found = cluster.run("cancel", *flags, "--dry-run")
    assert found.exit_code == 0 and "brokers were asked" in found.stderr, found.output
    rows = [line.split(" ", 4) for line in found.stdout.splitlines()]
    shown = [(int(broker), api, orjson.loads(fields)) for _, broker, api, _, fields in rows]
    assert written(cluster) == [] and set_now(cluster) == BEFORE
    assert cluster.run("cancel", *flags).exit_code == 0 and cluster.replicas[0] == [1, 2]
    assert sorted(shown, key=lambda row: row[0]) == written(cluster), "each broker in this order"


@pytest.mark.spec("ADM-35", "ADM-37")
def test_a_dry_run_of_a_way_back_shows_no_throttle_of_what_it_cancels_and_that_of_what_others_move(
    cluster: Cluster, ended: Path
) -> None:
    cluster.moving = {1: ([3, 2, 1], [3], [1]), 2: ([1, 2, 4], [4], [])}
    ended.write_bytes(plan_of(ended.parent, {0: [3, 2], 1: [3, 2]}).read_bytes())
    found = cluster.run("cancel", "--rollback", "--reassignment-json-file", ended, *THROTTLE, "--dry-run")
    assert found.exit_code == 0, found.output
    rows = [line.split(" ", 4) for line in found.stdout.splitlines()]
    set_on = {r["resource_name"]: r["configs"] for *_, f in rows for r in orjson.loads(f).get("resources", ())}
    assert [c["value"] for c in set_on["t"]] == ["0:2,0:3,2:1,2:2", "0:1,2:4"]
    assert set_on.keys() == {"t", "1", "2", "3", "4"} and all(c["value"] for keys in set_on.values() for c in keys)


@pytest.mark.spec("ADM-37", "RSN-23X")
@pytest.mark.parametrize("refused", ["each partition", "beside another move", "the request", "no controller"])
def test_a_way_back_that_does_not_begin_puts_back_the_throttles_it_found(
    cluster: Cluster, ended: Path, hurried: Path, refused: str
) -> None:
    def refuse(_: Any) -> object:
        for broker in cluster.brokers if refused == "no controller" else ():
            broker.controller_id = -1
        code = ErrorCode.NOT_CONTROLLER if refused == "no controller" else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return altering.AlterPartitionReassignmentsResponse(error_code=code, topics=[])

    if refused in ("the request", "no controller"):
        cluster.brokers[0].answers[altering.API.key] = refuse
    else:
        cluster.refusals[0] = (ErrorCode.POLICY_VIOLATION, "not today")
        if refused == "beside another move":
            cluster.moving[1] = ([4, 2, 1], [4], [1])
    flags = ["--rollback", "--reassignment-json-file", ended, "--command-config", hurried]
    found = cluster.run("cancel", *flags, *THROTTLE)
    assert found.exit_code == 1 and cluster.replicas[0] == [3, 2], found.output
    assert len(cluster.asked("IncrementalAlterConfigs")) > 4, "the throttle had been set"
    assert set_now(cluster) == BEFORE and "it was taken off" not in found.stderr
    assert "nothing was sent back: the throttles are as they were before\n" in found.stderr


@pytest.mark.spec("ADM-37", "RSN-23X")
def test_a_broker_that_dies_while_a_way_back_is_throttled_leaves_no_throttle_at_the_others(
    cluster: Cluster, ended: Path, hurried: Path
) -> None:
    cluster.brokers[2].answers[incremental_alter_configs.API.key] = lambda _: None
    flags = ["--rollback", "--reassignment-json-file", ended, "--command-config", hurried]
    found = cluster.run("cancel", *flags, *THROTTLE)
    assert found.exit_code == 1 and not cluster.asked("AlterPartitionReassignments")
    assert len(cluster.asked("IncrementalAlterConfigs")) > 4, "rates had been set"
    assert set_now(cluster) == BEFORE
    dead = cluster.brokers[2].address
    assert f"nothing was sent back, but the throttle could not be taken back everywhere: {dead}" in found.stderr
    assert "# takes throttles off when nothing moves any more" in found.stderr


@pytest.mark.spec("ADM-37", "ADM-56", "RSN-23X")
@pytest.mark.parametrize("after", ["no answer", "each failed", "a look that is refused"])
def test_a_way_back_that_may_have_begun_keeps_its_throttle_and_what_takes_it_off_is_told(
    cluster: Cluster, ended: Path, hurried: Path, after: str
) -> None:
    def refused_once_it_moves(request: Any) -> object:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return (
            listing.ListPartitionReassignmentsResponse(error_code=code, topics=[]) if cluster.moving else list_(request)
        )

    list_ = cluster.brokers[0].answers[listing.API.key]
    if after == "no answer":
        cluster.brokers[0].answers[altering.API.key] = lambda _: None
    elif after == "each failed":
        cluster.refusals[0] = (ErrorCode.REQUEST_TIMED_OUT, "too early")
    else:
        cluster.brokers[0].answers[listing.API.key] = refused_once_it_moves
    flags = ["--rollback", "--reassignment-json-file", ended, "--command-config", hurried]
    found = cluster.run("cancel", *flags, *THROTTLE)
    assert found.exit_code == 1 and "nothing was sent back" not in found.stderr
    assert cluster.configs[4, "3"] == dict.fromkeys(RATES, "1000") and cluster.configs[2, "t"][FOLLOWERS] == "0:1"
    way = f"--cancel --rollback --reassignment-json-file {ended}"
    assert f"{way}  # look again, and send back the rest; takes the throttle off" in found.stderr


@pytest.mark.spec("ADM-37", "RSN-23X")
@pytest.mark.parametrize("while_", ["setting", "sending"])
def test_ctrl_c_leaves_no_throttle_of_a_way_back_or_says_what_takes_it_off(
    cluster: Cluster, ended: Path, monkeypatch: pytest.MonkeyPatch, while_: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    sent: list[object] = []
    if while_ == "setting":
        carry_out = throttles.carry_out

        def set_some(client: Any, changes: Any, **flags: Any) -> None:
            carry_out(client, changes if sent else changes[:2], **flags)
            if not sent:
                sent.append(changes)
                raise KeyboardInterrupt

        monkeypatch.setattr(throttles, "carry_out", set_some)
    else:
        send = reassignments.send
        monkeypatch.setattr(
            reassignments, "send", lambda client, wanted: interrupt() if wanted else send(client, wanted)
        )
    found = cluster.run("cancel", "--rollback", "--reassignment-json-file", ended, *THROTTLE)
    assert found.exit_code == 130 and not cluster.moving
    assert (set_now(cluster) == BEFORE) == (while_ == "setting")
    assert ("nothing was sent back: the throttles are as they were" in found.stderr) == (while_ == "setting")
    assert ("# look again, and send back the rest" in found.stderr) == (while_ == "sending")


# --- SIGTERM ----------------------------------------------------------------------------------------------------


@pytest.fixture
def sigterm() -> Iterator[Callable[..., None]]:
    """What sends SIGTERM to this process; a command that leaves it to the process fails the test, and does not end it."""

    def unheeded(*_: object) -> NoReturn:
        raise AssertionError("SIGTERM would have ended the process")

    before = signal.signal(signal.SIGTERM, unheeded)
    yield lambda *_: signal.raise_signal(signal.SIGTERM)
    assert signal.signal(signal.SIGTERM, before) is unheeded, "the command leaves signals as they were"


@pytest.mark.spec("RSN-23X", "ADM-57")
@pytest.mark.parametrize("mode", ["execute", "cancel"])
def test_sigterm_while_a_throttle_is_set_takes_it_back(
    cluster: Cluster, ended: Path, monkeypatch: pytest.MonkeyPatch, sigterm: Callable[..., None], mode: str
) -> None:
    sent: list[object] = []
    carry_out = throttles.carry_out

    def set_some(client: Any, changes: Any, **flags: Any) -> None:
        carry_out(client, changes if sent else changes[:2], **flags)
        if not sent:
            sent.append(changes)
            sigterm()

    monkeypatch.setattr(throttles, "carry_out", set_some)
    if mode == "execute":
        cluster.replicas[0] = [1, 2]
    flags = ["--rollback"] if mode == "cancel" else []
    found = cluster.run(mode, "--reassignment-json-file", ended, *flags, *THROTTLE)
    assert found.exit_code == 130 and not cluster.moving and set_now(cluster) == BEFORE
    assert ": the throttles are as they were before\n" in found.stderr


@pytest.mark.spec("RSN-23X", "ADM-57")
@pytest.mark.parametrize("mode", ["execute", "cancel", "verify"])
def test_sigterm_while_kt_waits_is_told_with_what_goes_on_and_what_to_type(
    cluster: Cluster, ended: Path, monkeypatch: pytest.MonkeyPatch, sigterm: Callable[..., None], mode: str
) -> None:
    monkeypatch.setattr(RunProgressLine, "show", sigterm)
    cluster.configs.clear()
    if mode == "execute":
        cluster.replicas[0] = [1, 2]
    elif mode == "verify":
        cluster.moving[0] = ([3, 2, 1], [3], [1])
    flags: dict[str, tuple[object, ...]] = {
        "execute": ("--wait", *THROTTLE),
        "cancel": ("--rollback", *THROTTLE),
        "verify": ("--wait",),
    }
    found = cluster.run(mode, "--reassignment-json-file", ended, *flags[mode])
    assert found.exit_code == 130 and list(cluster.moving) == [0]
    again = "--cancel --rollback" if mode == "cancel" else "--verify --wait"
    assert "what moves goes on without kt; a throttle stays\n" in found.stderr
    assert f" {again} --reassignment-json-file {ended}  # wait on; takes the throttle off" in found.stderr


# --- lists -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("ADM-35")
def test_lists_are_sorted_as_text_and_replace_those_there_were(cluster: Cluster, tmp_path: Path) -> None:
    cluster.replicas = {2: [1, 2], 10: [2, 1]}
    cluster.configs = {(2, "t"): {LEADERS: "7:1", FOLLOWERS: "7:2", "retention.ms": "5"}}
    plan = plan_of(tmp_path, {2: [3, 4], 10: [4, 3]})
    assert cluster.run("execute", "--reassignment-json-file", plan, "--throttle", 1000).exit_code == 0
    lists = {LEADERS: "10:1,10:2,2:1,2:2", FOLLOWERS: "10:3,10:4,2:3,2:4"}
    assert cluster.configs[2, "t"] == {**lists, "retention.ms": "5"}


@pytest.mark.spec("ADM-38")
def test_a_list_that_no_move_has_set_is_told_when_it_goes_with_the_plans_throttles(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.configs = {(2, "t"): {LEADERS: "*", FOLLOWERS: "0:3"}}
    found = cluster.run("verify", "--reassignment-json-file", plan_of(tmp_path, {0: [1, 2]}))
    assert found.exit_code == 0 and found.stdout.endswith("\nClearing topic-level throttles on topic t\n")
    assert set_now(cluster) == {}
    told = [line for line in found.stderr.splitlines() if "replicas=" in line]
    assert told == [f"no move has set {LEADERS}=* of topic t: it was taken off with the plan's throttles"]


# --- moves between log directories -----------------------------------------------------------------------------


@pytest.mark.spec("ADM-38")
def test_the_rate_of_moves_between_log_directories_stays_while_there_are_any(cluster: Cluster, tmp_path: Path) -> None:
    rates = {**dict.fromkeys(RATES, "7"), LOG_DIR_RATE: "7"}
    cluster.configs = {(4, broker): dict(rates) for broker in "123"}
    cluster.lies_in = {(1, 1): ("/a", "/b"), (2, 1): ("/a", None)}
    cluster.brokers[2].answers[describe_log_dirs.API.key] = tell_nothing
    plan = plan_of(tmp_path, {0: [1, 2]})  # another plan
    found = cluster.run("verify", "--reassignment-json-file", plan)
    assert found.stdout.endswith("\nClearing broker-level throttles on brokers 1,2,3\n")
    assert set_now(cluster) == {(4, "1"): {LOG_DIR_RATE: "7"}, (4, "3"): {LOG_DIR_RATE: "7"}}
    assert f"replicas of broker 1 are on their way to other log directories: {LOG_DIR_RATE} stays there" in found.stderr
    untold = "whether replicas of broker 3 are on their way to other log directories is not known"
    assert f"{untold}: {LOG_DIR_RATE} stays there" in found.stderr
    assert "not permitted: Describe on cluster (broker 3 as User:ANONYMOUS)" in found.stderr
    cluster.lies_in[1, 1] = ("/b", None)
    again = cluster.run("verify", "--reassignment-json-file", plan)
    assert again.stdout.endswith("\nClearing broker-level throttles on broker 1\n")
    assert set_now(cluster) == {(4, "3"): {LOG_DIR_RATE: "7"}}


@pytest.mark.spec("ADM-37", "ADM-38")
def test_a_cancel_sends_replicas_back_to_the_directories_they_lie_in(cluster: Cluster, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, {0: [1, 2], 1: [2, 1]}, ["/new", "any"])
    cluster.lies_in = {(1, 0): ("/old", "/new"), (2, 0): ("/old", "/new"), (2, 1): ("/old", "/elsewhere")}
    cluster.configs = {(4, "1"): {LOG_DIR_RATE: "7"}, (4, "2"): {LOG_DIR_RATE: "7"}}
    shown = cluster.run("cancel", "--reassignment-json-file", plan, "--dry-run")
    planned = [line.split(" ")[:3] for line in shown.stdout.splitlines()]
    assert planned[:2] == [["broker", b, "AlterReplicaLogDirs"] for b in ("1", "2")], shown.output
    assert cluster.lies_in[1, 0] == ("/old", "/new")
    found = cluster.run("cancel", "--reassignment-json-file", plan)
    assert (found.exit_code, found.stdout) == (
        0,
        "None of the specified partition reassignments are active.\n"
        "Successfully started moving log directory to /old for replica t-0 with broker 1 \n"
        "Successfully started moving log directory to /old for replica t-1 with broker 2 \n"
        "Clearing broker-level throttles on broker 1\n",
    )
    assert cluster.lies_in == {(1, 0): ("/old", None), (2, 0): ("/old", "/new"), (2, 1): ("/old", None)}
    assert set_now(cluster) == {(4, "2"): {LOG_DIR_RATE: "7"}}, "t-0 there is not of the plan, and moves on"
    again = cluster.run("cancel", "--reassignment-json-file", plan)
    assert (again.exit_code, again.stdout) == (
        0,
        "None of the specified partition reassignments are active.\nNone of the specified partition moves are active.\n",
    )


@pytest.mark.spec("ADM-37")
@pytest.mark.parametrize("silent", ["down", "not permitted"])
def test_a_cancel_does_not_say_that_nothing_moves_where_it_is_not_told(
    cluster: Cluster, tmp_path: Path, silent: str
) -> None:
    broker = 9 if silent == "down" else 3
    cluster.replicas[0] = [1, broker]
    cluster.brokers[2].answers[describe_log_dirs.API.key] = tell_nothing
    plan = plan_of(tmp_path, {0: [1, broker]}, ["any", "/new"])
    found = cluster.run("cancel", "--reassignment-json-file", plan)
    assert (found.exit_code, found.stdout) == (1, "None of the specified partition reassignments are active.\n")
    assert f"whether t-0-{broker} moves to another log directory is not known, and not cancelled" in found.stderr
    assert ("not permitted: Describe on cluster (broker 3" in found.stderr) == (silent == "not permitted")


@pytest.mark.spec("ADM-37")
def test_a_dead_broker_whose_replica_goes_with_the_cancel_does_not_hinder_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.moving[0] = ([1, 9, 2], [9], [2])
    plan = plan_of(tmp_path, {0: [1, 9]}, ["any", "/new"])
    for active in ("Successfully cancelled partition reassignment for: t-0", "None of the specified partition reass"):
        found = cluster.run("cancel", "--reassignment-json-file", plan)
        assert found.exit_code == 0 and found.stdout.startswith(active), found.output
        assert "None of the specified partition moves are active.\n" in found.stdout
