"""A client of the controllers of a cluster without ZooKeeper, which are asked without its brokers (ADM-4, KIP-919).

They serve what the active one decides by itself, and neither Metadata nor anything of what brokers hold: their own
addresses are told by DescribeCluster, from Kafka 3.7 on.
"""

from typing import ClassVar, Final, TypeVar

from kafkatool.core.client.cluster import NO_CODES, ClusterClient, Codes
from kafkatool.core.errors import RefusedError, UnsupportedApiError
from kafkatool.core.protocol.codec.schema import Api, Request
from kafkatool.core.protocol.messages import describe_cluster
from kafkatool.core.protocol.messages.describe_cluster import CONTROLLERS, DescribeClusterRequest
from kafkatool.core.protocol.messages.error_codes import ErrorCode

_Response = TypeVar("_Response")

_TELLS_ENDPOINT_TYPES: Final = 1  # the first version of DescribeCluster that can ask for controllers


class ControllerClient(ClusterClient):
    """``brokers`` are the controllers, and ``controller`` asks the active one, which moves are asked of and begun by."""

    KIND: ClassVar[str] = "controller"

    def any(self, api: Api, request: Request[_Response], *, least: int = 0, codes: Codes = NO_CODES) -> _Response:
        """Ask the active one: the others write nothing, and may be behind."""
        return self.controller(api, request, least=least, codes=codes)

    def refresh(self) -> None:
        """Read the controllers, which one is active, and the cluster id anew.

        Raises BrokerUnreachableError; RefusedError: who answers is a broker, or a controller too old to tell.
        """
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        try:
            answer = self._ask_any(describe_cluster.API, request, _TELLS_ENDPOINT_TYPES)
        except UnsupportedApiError as e:
            raise RefusedError(
                f"{e.broker} is no controller of Kafka 3.7 or later, which alone can be asked by --bootstrap-controller",
                now="name brokers, by --bootstrap-server",
            ) from e
        if answer.error_code in (ErrorCode.MISMATCHED_ENDPOINT_TYPE, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE):
            raise RefusedError(f"{self._answered} is a broker, no controller", now="name it by --bootstrap-server")
        if answer.error_code:
            raise self.refusal(describe_cluster.API, answer.error_code, answer.error_message)
        nodes = ((b.broker_id, b.host, b.port, b.rack) for b in answer.brokers)
        self._learn(answer.cluster_id, answer.controller_id, nodes)
