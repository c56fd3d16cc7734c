"""``from kafkatool import ...``: the public names, imported when they are named and not before."""

import subprocess
import sys
from pathlib import Path

import pytest

import kafkatool
from kafkatool import Broker, Controller, EmbeddedCluster
from kafkatool.core.errors import ConfigError, RefusedError


def test_public_names_are_those_of_their_rooms() -> None:
    assert [one.__name__ for one in (Broker, Controller, EmbeddedCluster)] == [
        "Broker",
        "StandaloneController",
        "EmbeddedCluster",
    ]
    assert {"Broker", "Controller", "EmbeddedCluster"} <= set(dir(kafkatool))
    with pytest.raises(ImportError, match="EmbededCluster"):
        from kafkatool import EmbededCluster  # type: ignore[attr-defined]  # noqa: F401


def test_importing_the_package_and_kt_loads_nothing_of_the_broker() -> None:
    code = "import sys, kafkatool, kafkatool.commands.main; print([m for m in sys.modules if 'kafkatool.broker' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_directory_may_be_a_string(tmp_path: Path) -> None:
    assert EmbeddedCluster(brokers=1, directory=str(tmp_path / "here")).files.directory == tmp_path / "here"


def test_a_misspelt_broker_option_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(
        RefusedError, match=r"no broker option min\.insync\.replica: did you mean min\.insync\.replicas\?"
    ):
        EmbeddedCluster(brokers=1, directory=tmp_path, options={"min.insync.replica": "2"})
    EmbeddedCluster(brokers=1, directory=tmp_path, options={"log.retention.hours": "1", "num.io.threads": "2"})
    EmbeddedCluster(brokers=1, directory=tmp_path, options={"listener.name.ssl.ssl.client.auth": "requested"})
    with pytest.raises(RefusedError, match=r"no broker option listener\.name\.ssl\.ssl\.client\.oath"):
        EmbeddedCluster(brokers=1, directory=tmp_path, options={"listener.name.ssl.ssl.client.oath": "requested"})


def test_a_broker_and_a_controller_are_made_of_properties() -> None:
    assert Broker({"zookeeper.connect": "localhost:1", "broker.id": "7"}).config.broker_id == 7
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        Controller({})
