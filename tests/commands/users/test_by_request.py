"""``kt users --bootstrap-server``: kafka-configs' words, and requests that brokers make credentials of."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.protocol.messages import alter_user_scram_credentials as altering
from kafkatool.core.protocol.messages import describe_user_scram_credentials as describing
from kafkatool.core.protocol.messages.error_codes import ErrorCode
from tests.core.client.fake_broker import FakeBroker

SECRET = "a-secret-word"
MISSING = "Attempt to delete a user credential that does not exist"


class ScramBroker(FakeBroker):
    """A broker made of functions that keeps credentials."""

    def __init__(self) -> None:
        super().__init__(1, {describing.API: (0, 0), altering.API: (0, 0)})
        self.kept: dict[str, dict[int, altering.ScramCredentialUpsertion]] = {}
        self.answers[describing.API.key] = self._describe
        self.answers[altering.API.key] = self._alter

    def _describe(self, asked: describing.DescribeUserScramCredentialsRequest) -> object:
        names = [user.name for user in asked.users or ()] or list(self.kept)
        return describing.DescribeUserScramCredentialsResponse(
            results=[
                describing.DescribedScramUser(
                    user=name,
                    error_code=ErrorCode.NONE if self.kept.get(name) else ErrorCode.RESOURCE_NOT_FOUND,
                    credential_infos=[
                        describing.ScramCredentialInfo(mechanism=m, iterations=one.iterations)
                        for m, one in self.kept.get(name, {}).items()
                    ],
                )
                for name in names
            ]
        )

    def _alter(self, asked: altering.AlterUserScramCredentialsRequest) -> object:
        absent = [one for one in asked.deletions if one.mechanism not in self.kept.get(one.name, {})]
        if absent:
            error = altering.AlteredScramUser(
                user=absent[0].name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=MISSING
            )
            return altering.AlterUserScramCredentialsResponse(results=[error])
        for gone in asked.deletions:
            del self.kept[gone.name][gone.mechanism]
        for new in asked.upsertions:
            self.kept.setdefault(new.name, {})[new.mechanism] = new
        users = {gone.name for gone in asked.deletions} | {new.name for new in asked.upsertions}
        return altering.AlterUserScramCredentialsResponse(results=[altering.AlteredScramUser(user=u) for u in users])


@pytest.fixture
def broker() -> Iterator[ScramBroker]:
    with ScramBroker() as made:
        yield made


def users(broker: ScramBroker, action: str, *args: str) -> Result:
    result = CliRunner().invoke(
        kt, ["users", action, "--bootstrap-server", str(broker.address), *args], input=SECRET + "\n"
    )
    assert SECRET not in result.output
    return result


@pytest.mark.spec("SEC-90", "SEC-93", "SEC-94")
def test_a_user_is_made_shown_and_deleted(broker: ScramBroker) -> None:
    wanted = "SCRAM-SHA-512=[],SCRAM-SHA-256=[iterations=8192]"
    made = users(broker, "alter", "--entity-name", "a b", "--add-config", wanted, "--password-file", "-")
    assert (made.exit_code, made.stdout) == (0, "Completed updating config for user a b.\n"), made.output
    credential = broker.kept["a b"][describing.SCRAM_SHA_256]
    assert credential.iterations == 8192 and bytes(credential.salt).isalnum()
    salted = hashlib.pbkdf2_hmac("sha256", SECRET.encode(), bytes(credential.salt), 8192)
    assert bytes(credential.salted_password) == salted
    line = "SCRAM credential configs for user-principal 'a b' are "
    line += "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096\n"
    assert users(broker, "list").stdout == line == users(broker, "describe", "--entity-name", "a b").stdout
    items = json.loads(users(broker, "list", "--output", "json").stdout)["items"]
    assert {"user": "a b", "mechanism": "SCRAM-SHA-256", "iterations": 8192} in items
    gone = users(broker, "alter", "--entity-name", "a b", "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512")
    assert gone.exit_code == 0 and not broker.kept["a b"]


@pytest.mark.spec("SEC-93")
def test_what_is_not_there_is_said_with_exit_1(broker: ScramBroker) -> None:
    unknown = users(broker, "describe", "--entity-name", "bob")
    assert (unknown.exit_code, unknown.stdout) == (1, "user bob has no SCRAM credential\n")
    absent = users(broker, "alter", "--entity-name", "bob", "--delete-config", "SCRAM-SHA-256")
    assert (absent.exit_code, absent.stdout) == (1, f"{MISSING}\n")
    few = "SCRAM-SHA-256=[iterations=100]"
    refused = users(broker, "alter", "--entity-name", "bob", "--add-config", few, "--password-file", "-")
    assert refused.exit_code == 1 and "Iterations 100 is less than the minimum 4096" in refused.stdout
    assert broker.kept == {}


@pytest.mark.spec("SEC-42", "SEC-93", "ADM-20")
def test_a_dry_run_shows_no_secret_and_sends_nothing(broker: ScramBroker, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(SECRET)
    wanted = ("--add-config", "SCRAM-SHA-256=[]", "--password-file", str(file), "--dry-run", "--output", "json")
    planned = users(broker, "alter", "--entity-name", "bob", *wanted)
    (item,) = json.loads(planned.stdout)["items"]
    assert item["api"] == "AlterUserScramCredentials"
    assert item["fields"]["upsertions"] == [
        {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": "[hidden]", "salted_password": "[hidden]"}
    ]
    assert broker.kept == {}
    absent = users(broker, "alter", "--entity-name", "bob", "--delete-config", "SCRAM-SHA-512", "--dry-run")
    assert absent.exit_code == 1 and "Invalid config(s): SCRAM-SHA-512" in absent.stdout
