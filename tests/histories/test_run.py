"""A run's own parts: where it is kept, and which topics it makes when."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.histories import nemesis
from tests.histories import run as histories_run
from tests.histories.clients.client import AIOKAFKA, KAFKA_PYTHON, LIBRDKAFKA, Cell
from tests.histories.clients.values import PARTITIONS, topic_of
from tests.histories.matrix import CLIENTS, cell_of, fitted, safe, unsafe
from tests.histories.run import Run

_STAGE: Any = SimpleNamespace(source="ours", version="", doors=None, flushed=False, plan=lambda *_: iter(()))


@pytest.mark.parametrize("kept", ["history.jsonl", "cluster/server.log", ""])
def test_a_directory_that_holds_something_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kept: str
) -> None:
    directory = tmp_path / "kept"
    file = directory / kept  # without a name: it is a file itself
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("of another run")
    monkeypatch.setattr(sys, "argv", ["history-run", "--keep", str(directory)])
    with pytest.raises(SystemExit) as ended:
        histories_run.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"argument --keep: {directory}" in said
    assert ("is not empty" if kept else "Not a directory") in said
    assert file.read_text() == "of another run"


def test_a_directory_that_is_empty_or_not_there_is_taken(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "not" / "there"):
        assert histories_run.unused(str(directory)) == directory


@pytest.mark.spec("HIS-13", "HIS-44")
@pytest.mark.parametrize("seed", range(40))
def test_what_is_asked_for_comes_in_place_of_what_the_seed_draws(seed: int) -> None:
    parser = histories_run.arguments()

    def chosen(*words: str) -> Cell:
        return histories_run.chosen_cell(parser, parser.parse_args(["--seed", str(seed), *words]))

    drawn = cell_of(seed)
    assert chosen() == drawn
    for client in CLIENTS:
        assert chosen("--client", client) == fitted(safe(drawn), client)
        assert chosen("--client", client, "--losses", "may") == unsafe(drawn)._replace(client=client)
    assert chosen("--via", "subscribe", "--guarantee", "transactional").client == LIBRDKAFKA, "as no other plays that"
    own = chosen("--client", AIOKAFKA, "--via", "subscribe", "--guarantee", "plain", "--cleanup", "compact")
    assert (own.client, own.via, own.guarantee, own.cleanup) == (AIOKAFKA, "subscribe", "plain", "compact")


@pytest.mark.spec("HIS-13")
@pytest.mark.parametrize(
    "words",
    [
        ["--client", KAFKA_PYTHON, "--via", "subscribe"],
        ["--client", KAFKA_PYTHON, "--cleanup", "compact"],
        ["--client", KAFKA_PYTHON, "--guarantee", "transactional"],
        ["--client", AIOKAFKA, "--via", "subscribe", "--guarantee", "transactional"],
    ],
)
def test_what_a_client_does_not_play_is_refused_with_the_nearest_that_it_does(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = histories_run.arguments()
    with pytest.raises(SystemExit) as ended:
        histories_run.chosen_cell(parser, parser.parse_args(["--seed", "1", *words]))
    assert ended.value.code == 2
    assert f"{words[1]}'s recorder does not play that; the nearest that it does: Cell(" in capsys.readouterr().err


@pytest.mark.spec("HIS-41")
def test_topics_are_made_before_their_keys_are_active_and_more_of_them_as_keys_retire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def create(_: object, topic: str, partitions: int, __: object) -> None:
        assert partitions == PARTITIONS
        made.append(topic)

    monkeypatch.setattr(nemesis, "create_topic", create)
    run = Run(_STAGE, tmp_path / "history.jsonl", 1, Cell("assign", "plain"), 0)
    run.create_topics()
    at_first = list(made)
    assert at_first == [topic_of(key) for key in range(0, 16, PARTITIONS)]
    for _ in range(20):
        for _ in range(run.keys.limit):
            run.keys.draw(7)
        run.create_topics()
        assert {topic_of(key) for key in run.keys.active()} <= set(made)
    assert len(set(made)) == len(made) == len(at_first) + 10
