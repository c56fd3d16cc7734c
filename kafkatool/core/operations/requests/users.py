"""SCRAM users by requests: any broker from 2.7 on tells of them, the controller changes them (KIP-554, SEC-90, SEC-93).

A request carries the salted password, which is as good as the password.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kafkatool.core.client.cluster import ClusterClient
from kafkatool.core.operations.users import NoSuchCredentialError, ScramUser
from kafkatool.core.protocol.messages import alter_user_scram_credentials as altering
from kafkatool.core.protocol.messages import describe_user_scram_credentials as describing
from kafkatool.core.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkatool.core.protocol.messages.describe_user_scram_credentials import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    DescribeUserScramCredentialsRequest,
    ScramUserName,
)
from kafkatool.core.protocol.messages.error_codes import ErrorCode, answer_error
from kafkatool.core.security.scram import MECHANISMS, make_salt

_NUMBERS: Final = {"SCRAM-SHA-256": SCRAM_SHA_256, "SCRAM-SHA-512": SCRAM_SHA_512}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}


def read_users(client: ClusterClient, names: Collection[str] | None = None) -> list[ScramUser]:
    """Ask for the users that have credentials, sorted; or for those named, who may have none. Raises BrokerAnswerError."""
    asked = None if names is None else [ScramUserName(name=name) for name in sorted(set(names))]
    answer = client.any(describing.API, DescribeUserScramCredentialsRequest(users=asked))
    if answer.error_code:
        raise client.refusal(describing.API, answer.error_code, answer.error_message)
    found = []
    for one in answer.results:
        known = {_NAMES[c.mechanism]: c.iterations for c in one.credential_infos if c.mechanism in _NAMES}
        unreadable = None
        if one.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            unreadable = str(client.refusal(describing.API, one.error_code, one.error_message))
        found.append(ScramUser(one.user, {m: known[m] for m in MECHANISMS if m in known}, unreadable))
    return sorted(found, key=lambda user: user.name)


def alteration(
    name: str, iterations: Mapping[str, int], password: bytes, deleted: Sequence[str]
) -> AlterUserScramCredentialsRequest:
    """Make the request that sets a credential for each mechanism of ``iterations``, and deletes others."""
    upsertions = []
    for mechanism, count in iterations.items():
        salt = make_salt()
        salted = MECHANISMS[mechanism].salted_password(password, salt, count)
        upsertions.append(
            ScramCredentialUpsertion(
                name=name, mechanism=_NUMBERS[mechanism], iterations=count, salt=salt, salted_password=salted
            )
        )
    deletions = [ScramCredentialDeletion(name=name, mechanism=_NUMBERS[mechanism]) for mechanism in deleted]
    return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)


def alter_user(client: ClusterClient, request: AlterUserScramCredentialsRequest) -> None:
    """Have it done. Raises NoSuchCredentialError and BrokerAnswerError."""
    answer = client.controller(altering.API, request, codes=lambda a: (one.error_code for one in a.results))
    for one in answer.results:
        if one.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise NoSuchCredentialError(str(answer_error(one.error_code, one.error_message)))
        if one.error_code:
            raise client.refusal(altering.API, one.error_code, one.error_message)
