"""Which processes are taken for the ZooKeeper of a cluster that kt cluster up started."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafkatool.broker.embedded.cluster_files import ClusterFiles, ClusterSpec
from kafkatool.broker.embedded.running import running_clusters
from kafkatool.broker.embedded.zookeeper_process import MAIN


@contextmanager
def process_named(*arguments: str, home: str) -> Iterator[None]:
    """Run a process with these words on its command line; ready when the block begins."""
    command = [sys.executable, "-c", "print(flush=True); input()", *arguments]
    environment = {**os.environ, "HOME": home}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield
        finally:
            running.kill()


def make_cluster(directory: Path, *, offered: bool) -> str:
    """Write the files of a complete cluster; return the path of its ZooKeeper's config."""
    files = ClusterFiles(directory)
    files.directory.mkdir()
    files.save(ClusterSpec(2181, {2: 9093, 1: 9092}, complete=True, offered=offered))
    return str(files.zookeeper / "zoo.cfg")


def test_a_cluster_of_this_home_is_found_and_no_other(tmp_path: Path) -> None:
    config = make_cluster(tmp_path / "mine", offered=True)
    of_a_test = make_cluster(tmp_path / "tests", offered=False)
    home = os.environ["HOME"]
    with process_named(MAIN, config, home=home), process_named(MAIN, of_a_test, home=home):
        assert {d: a for d, a in running_clusters().items() if d.is_relative_to(tmp_path)} == {
            tmp_path / "mine": ("127.0.0.1:2181", "127.0.0.1:9092,127.0.0.1:9093")
        }
    with process_named(MAIN, config, home=str(tmp_path)):
        assert tmp_path / "mine" not in running_clusters(), "that of another home is somebody else's"


def test_a_process_that_only_names_zookeepers_class_is_passed_over(tmp_path: Path) -> None:
    with process_named("-f", MAIN, home=os.environ["HOME"]):
        running_clusters()  # somebody who looks for it, with pgrep say
