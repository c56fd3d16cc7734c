"""AlterUserScramCredentials (key 51), version 0: set and delete SCRAM credentials, on the controller (SEC-90; KIP-554).

The salted password is as good as the password: it is taken over TLS, or from this machine.
"""

from kafkatool.broker.administration.topics import AdminError
from kafkatool.broker.administration.users import Deletion, Upsertion
from kafkatool.broker.handlers.authorization import cluster
from kafkatool.broker.handlers.call import Call, Served
from kafkatool.core.client.addresses import is_loopback
from kafkatool.core.model.acls import Operation
from kafkatool.core.protocol.messages import alter_user_scram_credentials as wire
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_NOT_CONTROLLER = AdminError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")


@Served(wire.API, versions=(0, 0), asks=(cluster(Operation.ALTER, with_text=True),))
def handle(request: wire.AlterUserScramCredentialsRequest, call: Call) -> wire.AlterUserScramCredentialsResponse:
    deletions = [Deletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]
    users = [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    outcomes: dict[str, AdminError | None]
    if not call.context.controller.is_active:
        outcomes = dict.fromkeys(users, _NOT_CONTROLLER)
    else:
        private = call.is_encrypted or is_loopback(call.client_host)
        outcomes = call.context.user_admin.alter(deletions, upsertions, is_private=private)
    return wire.AlterUserScramCredentialsResponse(
        results=[
            wire.AlteredScramUser(user=user)
            if error is None
            else wire.AlteredScramUser(user=user, error_code=error.code, error_message=str(error))
            for user, error in outcomes.items()
        ]
    )
