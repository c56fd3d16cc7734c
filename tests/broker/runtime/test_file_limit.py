"""Run in processes of their own: a limit cannot be raised again once its hard part is down."""

import subprocess
import sys

import pytest

_CODE = """
import logging, resource
from kafkatool.broker.runtime.file_limit import raise_file_limit
logging.basicConfig()
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def _run(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
    code = _CODE.format(soft=soft, hard=hard)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.spec("BRK-144")
@pytest.mark.parametrize("soft", [100, 1000])
def test_a_broker_may_open_as_many_files_as_the_system_allows_and_says_when_that_is_few(soft: int) -> None:
    done = _run(soft, 1000)
    assert done.stdout == "1000 (1000, 1000)\n"
    assert "may have 1000 files open" in done.stderr


@pytest.mark.spec("BRK-144")
def test_enough_files_are_not_worth_a_word() -> None:
    done = _run(500, 10_000)
    assert done.stdout == "10000 (10000, 10000)\n"
    assert not done.stderr
