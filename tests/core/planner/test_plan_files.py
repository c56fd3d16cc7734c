"""Plan files: the words in which bad ones are refused, and that what is written can be read again."""

import io
import itertools
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkatool.core.errors import KafkatoolError, RefusedError, UsageError
from kafkatool.core.model.values import TopicPartition
from kafkatool.core.planner import plan_files
from kafkatool.core.planner.plan_files import plan_json, split_plan


def plan(*entries: dict[str, object], **more: object) -> str:
    return json.dumps({"version": 1, "partitions": list(entries), **more})


def entry(topic: object = "t", partition: object = 0, replicas: object = (1, 2), **more: object) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "replicas": replicas, **more}


moves = st.dictionaries(
    st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 10**6)),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5, unique=True).map(tuple),
    min_size=1,
)


@pytest.mark.spec("RSN-5")
@given(moves)
def test_a_plan_written_is_read_back_sorted(wanted: dict[TopicPartition, tuple[int, ...]]) -> None:
    read = plan_files.parse_plan(plan_files.plan_json(wanted), "plan.json")
    assert read == wanted
    assert list(read) == sorted(wanted)


@pytest.mark.spec("RSN-5")
def test_plan_json_is_compact_with_the_documents_key_order() -> None:
    assert plan_files.plan_json({TopicPartition("t", 0): (1, 2)}) == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    )


@pytest.mark.spec("RSN-5", "RSN-21X")
def test_further_keys_of_a_plan_are_passed_over() -> None:
    wanted = {TopicPartition("t", 0): (1, 2)}
    text = plan_files.plan_json(wanted, plan_sha256="0f")
    assert text == '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}],"plan_sha256":"0f"}'
    assert plan_files.parse_plan(text, "plan.json") == wanted
    assert plan_files.parse_placed_plan(text, "plan.json") == (wanted, {})


@pytest.mark.spec("RSN-5")
def test_log_dirs_any_is_dropped() -> None:
    text = plan(entry(log_dirs=["any", "any"]))
    assert plan_files.parse_plan(text, "plan.json") == {TopicPartition("t", 0): (1, 2)}


@pytest.mark.spec("RSN-7", "COM-9X", "Z-21")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "Partition reassignment data file is empty"),
        ("[]", "Partition reassignment data file is empty"),
        (plan(), "Partition reassignment data file is empty"),
        (plan(entry(replicas=[])), "Partition replica list cannot be empty"),
        (plan(entry(), entry()), "Partition reassignment contains duplicate topic partitions: [t,0]"),
        (
            plan(entry(replicas=[1, 2, 2]), entry(partition=1, replicas=[3, 3, 4, 4])),
            "Partition replica lists may not contain duplicate entries: [t,0] contains multiple entries for 2. "
            "[t,1] contains multiple entries for 3,4",
        ),
        (plan(entry(), version=2), "Not supported version field value 2"),
        (
            plan(entry(log_dirs=["any"])),
            "Size of replicas list [1, 2] is different from size of log dirs list [any] for partition [t,0]",
        ),
    ],
)
def test_refused_content_is_named_in_kafkas_words(text: str, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        plan_files.parse_plan(text, "plan.json")
    assert str(refused.value) == message
    with pytest.raises(RefusedError) as dashed:
        plan_files.parse_plan(text, "plan.json", name_of=plan_files.dashed)
    assert str(dashed.value) == message.replace("[t,0]", "t-0").replace("[t,1]", "t-1")


@pytest.mark.spec("RSN-5", "RSN-17X")
@pytest.mark.parametrize(
    ("bad", "where"),
    [
        (entry(partition=-1), "plan.json: partitions[0].partition: -1"),
        (entry(partition="0"), 'plan.json: partitions[0].partition: "0"'),
        (entry(partition=True), "plan.json: partitions[0].partition: true"),
        (entry(replicas=[1, -2]), "plan.json: partitions[0].replicas[1]: -2"),
        (entry(replicas=[1.5]), "plan.json: partitions[0].replicas[0]: 1.5"),
        (entry(replicas=None), "plan.json: partitions[0]: 'replicas' is missing"),
        (entry(topic=7), "plan.json: partitions[0]: 'topic' is missing"),
        (entry(log_dirs=["any", "/data"]), 'plan.json: partitions[0]: log_dirs other than "any"'),
    ],
)
def test_a_bad_field_is_named_by_its_place(bad: dict[str, object], where: str) -> None:
    with pytest.raises(RefusedError) as refused:
        plan_files.parse_plan(plan(bad), "plan.json")
    assert str(refused.value).startswith(where)


@pytest.mark.spec("RSN-17X", "COM-3X")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"version":1,\n  "partitions": [,]}', "plan.json:2:18: not JSON: Expecting value"),
        ("{“version”:1}", "plan.json:1:2: not JSON: typographic quote “"),
        ("", "plan.json:1:1: not JSON: the file is empty"),
        ("oops", "plan.json:1:1: not JSON"),
        (
            "Current partition replica assignment\n{}\n\nProposed partition reassignment configuration\n{}\n",
            "plan.json:1:1: not JSON: this is all that --generate printed",
        ),
        (
            "Current partition replica assignment\n\n{}\n\nSave this to use as …\n",
            "plan.json:1:1: not JSON: this is all that --execute printed: only the JSON below its first line is a plan",
        ),
    ],
)
def test_bad_json_is_a_usage_error_with_line_and_column(text: str, message: str) -> None:
    for parse in (plan_files.parse_plan, plan_files.parse_election):
        with pytest.raises(UsageError) as bad:
            parse(text, "plan.json")
        assert str(bad.value).startswith(message)


@pytest.mark.spec("RSN-2")
def test_topics_to_move_keep_the_files_order_and_need_no_version() -> None:
    assert plan_files.parse_topics_to_move('{"topics":[{"topic":"b"},{"topic":"a"}]}', "f") == ("b", "a")


@pytest.mark.spec("RSN-2")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"topics":[{"topic":"t"}],"version":2}', "Not supported version field value 2"),
        (
            '{"topics":[{"topic":"t"},{"topic":"t"}],"version":1}',
            "List of topics to reassign contains duplicate entries: t",
        ),
        ('{"version":1}', "f: no topics"),
        ('{"topics":["t"]}', "f: topics[0]: 'topic' is missing"),
    ],
)
def test_topics_to_move_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        plan_files.parse_topics_to_move(text, "f")
    assert str(refused.value).startswith(message)


@pytest.mark.spec("ELE-2")
def test_an_election_file_takes_extra_keys_in_any_order() -> None:
    text = '{ "version": 9, "partitions": [ {"partition": 1, "topic": "t", "x": 0}, {"topic": "t", "partition": 0} ] }'
    assert plan_files.parse_election(text, "f") == (TopicPartition("t", 0), TopicPartition("t", 1))


@pytest.mark.spec("ELE-2")
def test_an_election_file_that_is_refused() -> None:
    twice = '{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}'
    with pytest.raises(RefusedError, match=r"^Preferred replica election data contains duplicate partitions: t-0$"):
        plan_files.parse_election(twice, "f")
    entries = [{"topic": t, "partition": p} for t, p in (("u", 1), ("t", 2), ("t", 0), ("u", 1), ("t", 0))]
    with pytest.raises(RefusedError, match=r" contains duplicate partitions: t-0,u-1$"):
        plan_files.parse_election(json.dumps({"partitions": entries}), "f")
    with pytest.raises(RefusedError, match=r"^Preferred replica election data is empty$"):
        plan_files.parse_election('{"version":1}', "f")


@given(st.text())
def test_any_text_is_read_or_refused_with_an_error_of_ours(text: str) -> None:
    for parse in (plan_files.parse_plan, plan_files.parse_election, plan_files.parse_topics_to_move):
        try:
            parse(text, "f")
        except KafkatoolError:
            continue


@pytest.mark.spec("RSN-32X")
def test_a_dash_reads_standard_input_and_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    assert plan_files.read_text("-", io.StringIO("{}")) == "{}"
    with pytest.raises(UsageError, match=r"nofile\.json: No such file"):
        plan_files.read_text(str(tmp_path / "nofile.json"), io.StringIO())
    (tmp_path / "latin").write_bytes(b"\xe9")
    with pytest.raises(UsageError, match="not UTF-8"):
        plan_files.read_text(str(tmp_path / "latin"), io.StringIO())


@pytest.mark.spec("RSN-21X")
def test_writing_keeps_what_was_there_under_a_number(tmp_path: Path) -> None:
    path = tmp_path / "plan.rollback.json"
    for text in ("a", "b", "b", "c"):
        plan_files.write_file(path, text)
    assert path.read_text() == "c\n"
    assert (tmp_path / "plan.rollback.json.1").read_text() == "a\n"
    assert (tmp_path / "plan.rollback.json.2").read_text() == "b\n"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.spec("RSN-21X")
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"cannot write .*nodir"):
        plan_files.write_file(tmp_path / "nodir" / "x.json", "a")


@pytest.mark.spec("RSN-21X")
def test_a_plan_is_not_put_where_a_device_or_a_pipe_is(tmp_path: Path) -> None:
    """As root it would take the place of /dev/null; and a way back that went there is none."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(RefusedError, match=r"cannot write .*pipe: it is no file"):
        plan_files.write_file(pipe, "a")
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


@pytest.mark.spec("RSN-19X")
def test_the_size_of_a_batch_is_its_entries_and_what_is_around_them() -> None:
    assert len(plan_json({})) == 29
    for topic, number, replicas in (("t", 7, (1, 2, 3)), ("x" * 50, 12345, (1001, 1002)), ("t", 0, (1,))):
        one = {TopicPartition(topic, number): replicas}
        entry = 39 + len(topic) + len(str(number)) + len(",".join(map(str, replicas)))
        assert len(plan_json(one)) == 29 + entry
        two = {**one, TopicPartition("z" * len(topic), number): replicas}
        assert len(plan_json(two)) == 29 + 2 * entry + 1


@pytest.mark.spec("RSN-19X")
@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text("abcé", min_size=1, max_size=9), st.integers(0, 99999)),
        st.lists(st.integers(0, 999), min_size=1, max_size=4, unique=True).map(tuple),
        max_size=30,
    ),
    st.integers(150, 600),
    st.integers(0, 7),
)
def test_batches_of_a_plan_hold_all_of_it_in_order_within_both_bounds(
    moves: dict[TopicPartition, tuple[int, ...]], max_bytes: int, max_count: int
) -> None:
    moves = dict(sorted(moves.items()))
    batches = split_plan(moves, max_bytes=max_bytes, max_count=max_count)
    assert [entry for batch in batches for entry in batch.items()] == list(moves.items())
    for batch, following in itertools.pairwise([*batches, {}]):
        assert len(plan_json(batch).encode()) <= max_bytes and (not max_count or len(batch) <= max_count)
        if following and len(batch) != max_count:  # it was full
            more = {**batch, **dict(list(following.items())[:1])}
            assert len(plan_json(more).encode()) > max_bytes


@pytest.mark.spec("RSN-22X", "RSN-37X")
def test_two_that_replace_a_file_at_once_leave_one_content_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, both_wrote = tmp_path / "plan.state.json", threading.Barrier(2)
    contents = [b"a" * 100_000, b"b" * 10]
    fsync, own = os.fsync, threading.local()

    def together(descriptor: int) -> None:
        if not hasattr(own, "wrote"):
            own.wrote = True
            both_wrote.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", together)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda content: plan_files.replace_file(file, content), contents))
    assert file.read_bytes() in contents and list(tmp_path.iterdir()) == [file]


@pytest.mark.spec("SEC-45")
def test_no_link_that_somebody_else_has_put_beside_a_plan_is_followed(tmp_path: Path) -> None:
    """As anybody may in a directory such as /tmp, where all names are known beforehand."""
    victim, missing = tmp_path / "victim", tmp_path / "missing"
    victim.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "plan.json"
    file.write_text("before\n")
    (folder / f"plan.json.{os.getpid()}-{threading.get_native_id()}.tmp").symlink_to(victim)
    (folder / "plan.json.1").symlink_to(missing)
    (folder / "plan.json.2").symlink_to(victim)
    before = os.umask(0o027)
    try:
        kept = plan_files.write_file(file, "after")
    finally:
        os.umask(before)
    assert kept == folder / "plan.json.3" and kept.read_text() == "before\n"
    assert file.read_text() == "after\n" and file.stat().st_mode & 0o777 == 0o640
    assert victim.read_text() == "mine" and not missing.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["plan.json", "plan.json.1", "plan.json.2", "plan.json.3"]


@pytest.mark.spec("SEC-45")
def test_a_plan_that_is_itself_a_link_is_replaced_not_what_it_leads_to(tmp_path: Path) -> None:
    victim, file = tmp_path / "victim", tmp_path / "plan.json"
    victim.write_text("mine")
    file.symlink_to(victim)
    plan_files.write_file(file, "after")
    assert victim.read_text() == "mine" and file.read_text() == "after\n" and not file.is_symlink()
