"""SCRAM: RFC 7677's example, a real broker's exchange, and what must not pass."""

import random
import re
from base64 import b64decode, b64encode

import pytest

from kafkatool.broker.security.mechanisms import ScramUsers
from kafkatool.core.operations.users import make_credential
from kafkatool.core.security import scram
from kafkatool.core.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, Credential, ScramError, ScramMechanism

BOTH = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512], ids=lambda m: m.name)
RFC_SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.spec("SEC-36", "SEC-65")
def test_both_sides_write_the_messages_of_the_rfc() -> None:
    first = scram.client_first("user", "rOprNGfwEbeRWgbNEkqO")
    assert scram.encode_client_first(first) == RFC_FIRST
    final = scram.client_final(SCRAM_SHA_256, b"pencil", first, RFC_SERVER)
    assert final.message == RFC_FINAL
    scram.check_server_final(final, RFC_LAST)

    credential = SCRAM_SHA_256.credential(b"pencil", salt=RFC_SALT, iterations=4096)
    read = scram.read_client_first(RFC_FIRST)
    assert (read.user, read.nonce, read.gs2_header) == ("user", "rOprNGfwEbeRWgbNEkqO", "n,,")
    assert scram.server_first(read, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", credential) == RFC_SERVER
    assert scram.verify(SCRAM_SHA_256, credential, read, RFC_SERVER, RFC_FINAL) == RFC_LAST


@pytest.mark.spec("SEC-36")
def test_a_client_writes_names_as_kafka_does_and_draws_24_bytes_for_its_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    assert scram.encode_client_first(scram.client_first("a,b=\u00fc", "x")) == b"n,,n=a=2Cb=3D\xc3\xbc,r=x"
    drawn: list[int] = []

    def token_bytes(count: int) -> bytes:
        drawn.append(count)
        return bytes(range(count))

    monkeypatch.setattr("kafkatool.core.security.scram.secrets.token_bytes", token_bytes)
    assert b64decode(scram.make_nonce()) == bytes(range(24)) and drawn == [24]


@pytest.mark.spec("SEC-36")
def test_a_real_brokers_exchange_is_reproduced() -> None:
    # golden/secure-wire-2.8.2.txt, part 5: SCRAM-SHA-512
    first = scram.client_first("alice", "fyko+d2lbbFgONRv9qkxdawL")
    server = b"r=fyko+d2lbbFgONRv9qkxdawLzvdxb73g2zwbajtr2lllz4ra,s=NThjY2FicmlheW1uYWs1YWs4Nmo4bnFieg==,i=4096"
    final = scram.client_final(SCRAM_SHA_512, b"alice-secret", first, server)
    assert final.message == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawLzvdxb73g2zwbajtr2lllz4ra,"
        b"p=c6CDp7+HbZCnR3N/3F3+YVTsaSmDlhCtx4l1vXRr3NOPQuaDsSHTq6COxlJiyW31Lqi3WkBkfBV0pXbxtnDuXg=="
    )
    last = b"v=2Ow31k7TjAu/sPVsrtPFjR1QiO7OONQO1fQpsbUDTN91u1MUK8dBAb9iUIiwicXZtKgoIvnv5yg0HH/GqhC9+g=="
    scram.check_server_final(final, last)
    with pytest.raises(ScramError, match="does not know the password"):
        scram.check_server_final(final, b"v=" + b64encode(bytes(64)))
    with pytest.raises(ScramError, match="refused"):
        scram.check_server_final(final, b"e=other-error")


def login(mechanism: ScramMechanism, user: str, password: str, known: str) -> bytes:
    """Have both sides talk to each other; return the last message."""
    credential = mechanism.credential(known.encode(), salt=b"a salt of sixteen", iterations=4096)
    mine = scram.client_first(user, scram.make_nonce())
    theirs = scram.read_client_first(scram.encode_client_first(mine))
    assert theirs.user == user
    server = scram.server_first(theirs, scram.make_nonce(), credential)
    final = scram.client_final(mechanism, password.encode(), mine, server)
    last = scram.verify(mechanism, credential, theirs, server, final.message)
    scram.check_server_final(final, last)
    return last


@pytest.mark.spec("SEC-36")
@BOTH
@pytest.mark.parametrize("user", ["alice", "a=b,c", "=2C", "Zoë", "a b*c%d/é=,", "日本"])
def test_any_name_and_password_pass(mechanism: ScramMechanism, user: str) -> None:
    login(mechanism, user, "pä,ss=word", "pä,ss=word")
    with pytest.raises(ScramError, match="wrong proof"):
        login(mechanism, user, "pä,ss=word ", "pä,ss=word")


CREDENTIAL = SCRAM_SHA_256.credential(b"pencil", salt=RFC_SALT, iterations=4096)


@pytest.mark.spec("SEC-65")
@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"p=tls-unique,,n=user,r=x", "channel binding"),
        (b"x,,n=user,r=x", "channel binding"),
        (b"", "channel binding"),
        (b"n,user,n=user,r=x", "GS2"),
        (b"n,,m=must,n=user,r=x", "a name and a nonce"),
        (b"n,,n=user", "attributes"),
        (b"n,,n=,r=x", "no user name"),
        (b"n,,n=user,r=", "a name and a nonce"),
        (b"n,,n=us=er,r=x", "bare ="),
        (b"n,,n=user,r=x,y", "attributes"),
        (b"n,,n=\xff,r=x", "UTF-8"),
    ],
)
def test_a_first_message_that_is_none_is_refused(first: bytes, says: str) -> None:
    with pytest.raises(ScramError, match=says):
        scram.read_client_first(first)


@pytest.mark.spec("SEC-65")
def test_what_a_first_message_may_hold_beside_name_and_nonce() -> None:
    read = scram.read_client_first(b"y,a=ali=2Cce,n=ali=2Cce,r=x,tokenauth=true,foo=b=r")
    assert (read.gs2_header, read.authorization_id, read.user) == ("y,a=ali=2Cce,", "ali,ce", "ali,ce")
    assert read.extensions == {"tokenauth": "true", "foo": "b=r"}


@pytest.mark.spec("SEC-65")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((b"c=biws", b"c=eSws"), "GS2 header"),
        ((b"c=biws,", b""), "attributes|GS2"),
        ((b"$k0,", b"$k1,"), "nonce"),  # of the same length
        ((b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""), "nonce"),
        ((b"r=rOprN", b"r=xOprN"), "nonce"),
        ((b",p=dHz", b",p=dHy"), "wrong proof"),
        ((b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b",p="), "another mechanism"),
        ((b",p=dHzb", b",p=d*zb"), "base64"),
        ((b",p=", b",q="), "no proof"),
    ],
)
def test_a_final_message_that_differs_anywhere_is_refused(change: tuple[bytes, bytes], says: str) -> None:
    changed = RFC_FINAL.replace(*change)
    assert changed != RFC_FINAL
    with pytest.raises(ScramError, match=says):
        scram.verify(SCRAM_SHA_256, CREDENTIAL, scram.read_client_first(RFC_FIRST), RFC_SERVER, changed)


@pytest.mark.spec("SEC-65")
def test_librdkafka_before_2_6_1_gets_in_and_nobody_with_other_text_before_the_nonce() -> None:
    """It writes its own part of the nonce twice, as Kafka 3.9 still takes it."""
    read = scram.read_client_first(RFC_FIRST)

    def final(nonce: str) -> bytes:
        told = f"c=biws,r={nonce}"
        key = SCRAM_SHA_256.hmac(SCRAM_SHA_256.salted_password(b"pencil", RFC_SALT, 4096), b"Client Key")
        signed = b",".join((read.bare.encode(), RFC_SERVER, told.encode()))
        signature = SCRAM_SHA_256.hmac(SCRAM_SHA_256.hash(key), signed)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{told},p={b64encode(proof).decode()}".encode()

    def verify(nonce: str) -> bytes:
        return scram.verify(SCRAM_SHA_256, CREDENTIAL, read, RFC_SERVER, final(nonce))

    whole = RFC_SERVER.partition(b",")[0].decode().removeprefix("r=")
    assert verify(read.nonce + whole).startswith(b"v=")
    for wrong in (read.nonce, read.nonce + read.nonce, "x" + whole, read.nonce + read.nonce + whole, whole + "x"):
        with pytest.raises(ScramError, match="another nonce"):
            verify(wrong)


@pytest.mark.spec("SEC-115")
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=(pytest.mark.slow, pytest.mark.slowest))])
def test_no_mutated_token_is_accepted_or_breaks_the_server(count: int) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    read = scram.read_client_first(RFC_FIRST)
    for _ in range(count):
        token = bytearray(rng.choice((RFC_FIRST, RFC_FINAL)))
        for _ in range(rng.randrange(1, 4)):
            token[rng.randrange(len(token))] = rng.randrange(256)
        if rng.random() < 0.2:
            del token[rng.randrange(len(token)) :]
        if bytes(token) in (RFC_FIRST, RFC_FINAL):
            continue
        try:
            scram.read_client_first(bytes(token))
        except ScramError:
            pass
        # The last characters of base64 hold bits that no decoder reads: another text, the same proof.
        if not token.startswith(RFC_FINAL[:-2]):
            with pytest.raises(ScramError):
                scram.verify(SCRAM_SHA_256, CREDENTIAL, read, RFC_SERVER, bytes(token))


@pytest.mark.spec("SEC-36")
@pytest.mark.parametrize(
    ("server", "says"),
    [
        (RFC_SERVER.replace(b"r=rO", b"r=rP"), "does not continue ours"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "does not continue ours"),
        (RFC_SERVER.replace(b"i=4096", b"i=4095"), "4095 iterations"),
        (RFC_SERVER.replace(b"i=4096", b"i=1000001"), "1000001 iterations"),
        (RFC_SERVER.replace(b"i=4096", b"i=-1"), "no number"),
        (RFC_SERVER.replace(b"s=W", b"s=*"), "salt"),
        (b"i=4096", "attributes"),
    ],
)
def test_a_client_trusts_no_odd_server(server: bytes, says: str) -> None:
    with pytest.raises(ScramError, match=says):
        scram.client_final(SCRAM_SHA_256, b"pencil", scram.client_first("user", "rOprNGfwEbeRWgbNEkqO"), server)


@pytest.mark.spec("SEC-36")
@pytest.mark.parametrize("count", [4096, 1_000_000])
def test_a_client_takes_as_few_and_as_many_iterations_as_are_allowed(count: int) -> None:
    asked = RFC_SERVER.replace(b"i=4096", b"i=%d" % count)
    first = scram.client_first("user", "rOprNGfwEbeRWgbNEkqO")
    final = scram.client_final(SCRAM_SHA_256, b"pencil", first, asked)
    credential = SCRAM_SHA_256.credential(b"pencil", salt=RFC_SALT, iterations=count)
    read = scram.read_client_first(RFC_FIRST)
    scram.check_server_final(final, scram.verify(SCRAM_SHA_256, credential, read, asked, final.message))


@pytest.mark.spec("SEC-66")
def test_a_credential_is_written_as_kafka_does_and_shows_no_key() -> None:
    text = CREDENTIAL.encode()
    assert text == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )
    assert Credential.decode(text) == CREDENTIAL
    assert repr(CREDENTIAL) == "Credential(iterations=4096)"
    for damaged in (text.replace("salt", "sald"), text + ",x=1", text.replace("=4096", "=many"), "", text[20:]):
        with pytest.raises(ScramError) as caught:
            Credential.decode(damaged)
        assert "WG5d" not in str(caught.value)


def test_nonces_are_long_random_and_printable() -> None:
    nonces = {scram.make_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert all(len(b64decode(nonce)) >= 24 and "," not in nonce for nonce in nonces)


@pytest.mark.spec("SEC-65")
def test_a_salt_has_kafkas_form_so_that_who_is_unknown_is_asked_with_one_like_all_others() -> None:
    salts = {scram.make_salt() for _ in range(200)}
    salts |= {ScramUsers([]).stand_in(f"user{n}", scram.SCRAM_SHA_256).salt for n in range(200)}
    assert len(salts) == 400
    assert all(re.fullmatch(rb"[0-9a-z]{16,26}", salt) for salt in salts)
    assert make_credential("SCRAM-SHA-512", b"secret").salt.isalnum()
