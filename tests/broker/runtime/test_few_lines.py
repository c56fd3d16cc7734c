"""How often others get something said in the log."""

import threading

import pytest

from kafkatool.broker.runtime.few_lines import FewLines
from kafkatool.broker.runtime.refused_logins import tell_of_refused_login
from kafkatool.core.errors import LoginRefusedError


@pytest.mark.spec("SEC-49", "SEC-60", "SEC-75", "SEC-97")
def test_so_many_a_period_and_then_a_count_of_the_rest() -> None:
    now = [100.0]
    lines = FewLines(2, 10, clock=lambda: now[0])
    assert [lines.admit() for _ in range(5)] == [0, 0, None, None, None]
    assert lines.admit("another") == 0  # each key by itself
    now[0] = 109.9
    assert lines.admit() is None
    now[0] = 110.0
    assert [lines.admit() for _ in range(3)] == [4, 0, None]
    now[0] = 500.0
    assert lines.admit() == 1


@pytest.mark.spec("SEC-97")
def test_addresses_by_the_million_cost_no_memory() -> None:
    now = [0.0]
    lines = FewLines(1, 60, clock=lambda: now[0])
    for number in range(25_000):
        now[0] += 0.01
        assert lines.admit(number) == 0
        assert len(lines._periods) <= 10_000  # noqa: SLF001  # what it holds is what this test is about


@pytest.mark.spec("SEC-49")
def test_many_threads_together_are_admitted_no_more_than_one() -> None:
    lines, admitted = FewLines(1, 3600), list[int | None]()
    threads = [threading.Thread(target=lambda: admitted.append(lines.admit("peer"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one is None for one in admitted) == [False, *[True] * 19]


@pytest.mark.spec("SEC-49")
def test_a_refused_login_is_an_error_once_a_minute_for_each_peer(caplog: pytest.LogCaptureFixture) -> None:
    for peer in ("h1:9093", "h2:9093"):
        for _ in range(3):
            tell_of_refused_login(77, LoginRefusedError(peer, "refused the login of kafka (SASL PLAIN): no"))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("ERROR", f"broker 77 cannot log in to another: {peer} refused the login of kafka (SASL PLAIN): no")
        for peer in ("h1:9093", "h2:9093")
    ]
