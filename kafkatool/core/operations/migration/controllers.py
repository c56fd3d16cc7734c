"""What the KRaft controllers of a migration say of themselves: whether they migrate, and how their quorum is. Only reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkatool.core.client.controllers import ControllerClient
from kafkatool.core.errors import (
    AllRefusedError,
    BrokerUnreachableError,
    KafkatoolError,
    LoginRefusedError,
    NoControllerError,
    TlsError,
)
from kafkatool.core.operations.migration.metadata_versions import FEATURE
from kafkatool.core.operations.requests.quorum import NO_QUORUM, Quorum, described_in, quorum_of, quorum_request
from kafkatool.core.protocol.messages import api_versions, describe_quorum
from kafkatool.core.protocol.messages.api_versions import ApiVersionsRequest

LIMIT_MS: Final = 5000  # for each controller's answer, and for the leader's
_TELLS_MIGRATION: Final = 3  # the first version of ApiVersions that does


class ControllerAnswer(NamedTuple):
    """What one says. ``migrates``: it is set to; ``metadata_level``: of metadata.version as finalized, None: none is."""

    migrates: bool
    metadata_level: int | None


@dataclass(frozen=True, slots=True)
class Controllers:
    """The controllers' answers by id, and why others gave none. ``unreachable``: why none did, all else is empty then.

    ``refused``: none did as each address refused the connection. ``untold``: why the quorum is not known; without a reason
    a quorum with no leader is one that is said to have none.
    """

    cluster_id: str | None
    told: Mapping[int, ControllerAnswer]
    silent: Mapping[int, str]
    quorum: Quorum
    unreachable: str = ""
    refused: bool = False
    untold: str = ""

    @property
    def are_complete(self) -> bool:
        """Tell whether all there are have answered; which there are is told by the quorum's leader alone."""
        return self.quorum.leader is not None and bool(self.told) and not self.silent

    @property
    def migrate(self) -> bool:
        """Tell whether any of them is set to migrate."""
        return any(answer.migrates for answer in self.told.values())


def none_answers(error: BrokerUnreachableError) -> Controllers:
    """Return what is known where no controller answers. Raises the error where one does, and turns us away."""
    if isinstance(error, LoginRefusedError | TlsError):
        raise error
    return Controllers(None, {}, {}, NO_QUORUM, str(error), refused=isinstance(error, AllRefusedError))


def ask_controllers(client: ControllerClient) -> Controllers:
    """Ask who leads about the quorum, then each of them."""
    quorum, untold = _ask_leader(client)
    told, silent = {}, dict.fromkeys(sorted(set(quorum.behind_s).difference(client.brokers)), "it has not registered")
    version = client.settings.software_version
    request = ApiVersionsRequest(client_software_name="kt", client_software_version=version)
    for controller in sorted(client.brokers):
        client.begin_anew(LIMIT_MS)
        try:
            answer = client.broker(controller, api_versions.API, request, least=_TELLS_MIGRATION)
        except KafkatoolError as e:
            silent[controller] = str(e)
            continue
        levels = {f.name: f.max_version_level for f in answer.finalized_features}
        told[controller] = ControllerAnswer(answer.zk_migration_ready, levels.get(FEATURE))
    return Controllers(client.cluster_id, told, silent, quorum, untold=untold)


def _ask_leader(client: ControllerClient) -> tuple[Quorum, str]:
    """Return the quorum, or why it is not told."""
    client.begin_anew(LIMIT_MS)
    try:
        answer = client.controller(describe_quorum.API, quorum_request())
    except NoControllerError:
        if client.controller_id is None:  # so says who answered
            return NO_QUORUM, ""
        # Before metadata.version 3.7-IV0 controllers do not register, and their addresses are not told.
        return NO_QUORUM, f"controller {client.controller_id} leads it, and has not registered its address"
    except KafkatoolError as e:
        return NO_QUORUM, str(e)
    described = described_in(answer)
    if code := answer.error_code or (described.error_code if described else 0):
        return NO_QUORUM, str(client.refusal(describe_quorum.API, code))
    return quorum_of(answer), "" if described else "its leader tells nothing of it"
