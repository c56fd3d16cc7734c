"""The server's side of mechanisms, without a socket."""

import hmac
import random
from typing import Any

import pytest

from kafkatool.broker.security.mechanisms import LoginRefusedError, PlainExchange, PlainUsers, ScramExchange, ScramUsers
from kafkatool.core.security import scram
from kafkatool.core.security.scram import SCRAM_SHA_256, SCRAM_SHA_512

TOKEN = b"\0alice\0alice-secret"
CREDENTIAL = SCRAM_SHA_256.credential(b"alice-secret", salt=b"0123456789abcdef", iterations=4096)


@pytest.mark.spec("SEC-115", "SEC-64")
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=(pytest.mark.slow, pytest.mark.slowest))])
def test_no_mutated_token_of_plain_is_accepted(count: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    users = PlainUsers({"alice": "alice-secret", "bob": "b"})
    assert PlainExchange(users).take(TOKEN).user == PlainExchange(users).take(b"alice" + TOKEN).user == "alice"
    for _ in range(count):
        token = bytearray(TOKEN)
        for _ in range(rng.randrange(1, 4)):
            token[rng.randrange(len(token))] = rng.randrange(256)
        if rng.random() < 0.2:
            del token[rng.randrange(len(token)) :]
        if token != TOKEN:
            with pytest.raises(LoginRefusedError):
                PlainExchange(users).take(bytes(token))


@pytest.mark.spec("SEC-66")
def test_a_credential_that_cannot_be_read_disables_that_user_and_mechanism_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    users = ScramUsers(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    good = CREDENTIAL.encode()
    users.put("alice", {"SCRAM-SHA-256": "salt=!!,iterations=x", "SCRAM-SHA-512": good, "consumer_byte_rate": "1"})
    users.put("bob", {"SCRAM-SHA-256": good})
    assert users.find("alice", "SCRAM-SHA-256") is None
    assert users.find("alice", "SCRAM-SHA-512") == users.find("bob", "SCRAM-SHA-256") == CREDENTIAL
    ((level, line),) = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert level == "ERROR"
    assert line.startswith("user 'alice' cannot log in by SCRAM-SHA-256: ")
    assert "salt=" not in line


@pytest.mark.spec("SEC-66", "SEC-67")
def test_names_are_those_of_the_nodes_and_other_entities_hold_no_credentials() -> None:
    users = ScramUsers(["SCRAM-SHA-256"])
    good = {"SCRAM-SHA-256": CREDENTIAL.encode(), "SCRAM-SHA-512": CREDENTIAL.encode()}
    users.put("a%20b%2Ac%25d%2F%C3%A9%3D%2C", good)
    assert users.find("a b*c%d/é=,", "SCRAM-SHA-256") == CREDENTIAL
    assert users.find("a b*c%d/é=,", "SCRAM-SHA-512") is None  # no listener has it
    for entity in ("<default>", "carol/clients/x", "carol/clients/<default>"):
        users.put(entity, good)
    assert users.find("<default>", "SCRAM-SHA-256") is users.find("carol", "SCRAM-SHA-256") is None
    users.put("a%20b%2Ac%25d%2F%C3%A9%3D%2C", {})
    assert users.find("a b*c%d/é=,", "SCRAM-SHA-256") is None


@pytest.mark.spec("SEC-65")
def test_who_is_not_known_or_has_too_weak_a_credential_is_asked_like_others() -> None:
    users = ScramUsers(["SCRAM-SHA-256"])
    weak = scram.Credential(CREDENTIAL.salt, CREDENTIAL.stored_key, CREDENTIAL.server_key, 4095)
    users.put("weak", {"SCRAM-SHA-256": weak.encode()})
    assert users.find("weak", "SCRAM-SHA-256") is None
    found = {
        (user, mechanism.name): users.stand_in(user, mechanism)
        for user in ("weak", "nobody")
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
    }
    assert found["nobody", "SCRAM-SHA-256"] == users.stand_in("nobody", SCRAM_SHA_256)
    salts = [one.salt for one in found.values()]
    assert len(set(salts)) == 4  # real users have another for each mechanism
    for one in found.values():
        assert one.iterations == 4096
        assert 22 <= len(one.salt) <= 26
        assert one.salt.decode().isalnum()


class Work:
    """What an attempt to log in has computed and compared, by lengths alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, ...]] = []
        for name in ("digest", "compare_digest"):
            monkeypatch.setattr(hmac, name, self._noting(name, getattr(hmac, name)))

    def _noting(self, name: str, real: Any) -> Any:
        def noting(first: Any, second: Any, *more: Any) -> Any:
            self.done.append((name, str(len(first)), str(len(second)), *map(str, more)))
            return real(first, second, *more)

        return noting

    def of(self, exchange: PlainExchange | ScramExchange, *tokens: bytes) -> list[tuple[str, ...]]:
        """Give the tokens, the last of which is refused; return what that one cost."""
        for token in tokens[:-1]:
            exchange.take(token)
        self.done.clear()
        with pytest.raises(LoginRefusedError):
            exchange.take(tokens[-1])
        return self.done.copy()


@pytest.mark.spec("SEC-64")
def test_an_unknown_user_of_plain_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of one length, compared by what takes the same time for all."""
    work = Work(monkeypatch)
    exchange = PlainExchange(PlainUsers({"alice": "alice-secret"}))
    wrong, unknown = (work.of(exchange, b"\0" + user + b"\0wrong-words!") for user in (b"alice", b"nobody"))
    assert wrong == unknown
    assert [step[:3] for step in wrong] == [("digest", "32", "12"), ("compare_digest", "32", "32")]


@pytest.mark.spec("SEC-65")
@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda m: m.name)
def test_an_unknown_user_of_scram_costs_as_much_as_a_wrong_password(
    mechanism: scram.ScramMechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = ScramUsers([mechanism.name])
    credential = mechanism.credential(b"alice-secret", salt=scram.make_salt(bytes(17)), iterations=4096)
    users.put("alice", {mechanism.name: credential.encode()})
    work = Work(monkeypatch)

    def cost_of(user: str) -> list[tuple[str, ...]]:
        first = scram.client_first(user, scram.make_nonce())
        exchange = ScramExchange(mechanism, users)
        asked = exchange.take(scram.encode_client_first(first)).token
        final = scram.client_final(mechanism, b"wrong", first, asked)
        work.done.clear()
        with pytest.raises(LoginRefusedError):
            exchange.take(final.message)
        return [step for step in work.done if step[0] == "compare_digest"]

    size = str(len(credential.stored_key))
    stood_in = users.stand_in("nobody", mechanism)
    assert len(stood_in.stored_key) == len(stood_in.server_key) == len(credential.stored_key)
    assert cost_of("alice")[-1] == cost_of("bobby")[-1] == ("compare_digest", size, size)
