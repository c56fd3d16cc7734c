"""DescribeUserScramCredentials (key 50), version 0: who has SCRAM credentials (SEC-90, ADM-79; KIP-554)."""

from collections import Counter

from kafkatool.broker.administration.users import MECHANISM_NAMES
from kafkatool.broker.handlers.authorization import REFUSALS, by_handler
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.model.acls import Operation, ResourceType
from kafkatool.core.operations.users import ScramUser
from kafkatool.core.protocol.messages import describe_user_scram_credentials as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NUMBERS = {name: number for number, name in MECHANISM_NAMES.items()}


@Served(wire.API, versions=(0, 0), asks=(by_handler,))
def handle(request: wire.DescribeUserScramCredentialsRequest, call: Call) -> wire.DescribeUserScramCredentialsResponse:
    if not call.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        code, text = REFUSALS[ResourceType.CLUSTER]
        return wire.DescribeUserScramCredentialsResponse(error_code=code, error_message=text, results=[])
    listed = Counter(one.name for one in request.users or ())
    found = call.context.user_admin.find(list(listed) if listed else None)
    return wire.DescribeUserScramCredentialsResponse(results=[_told(user, listed[user.name]) for user in found])


def _told(user: ScramUser, times_listed: int) -> wire.DescribedScramUser:
    code, message = ErrorCode.NONE, None
    if times_listed > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"User {user.name} is listed twice in the request"
    elif not user.iterations:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {user.name}"
    infos = [
        wire.ScramCredentialInfo(mechanism=_NUMBERS[mechanism], iterations=iterations)
        for mechanism, iterations in user.iterations.items()
    ]
    return wire.DescribedScramUser(
        user=user.name, error_code=code, error_message=message, credential_infos=[] if code else infos
    )
