"""The request to the controller to move this broker's leaders away before it goes down (BRK-126).

Source: Kafka 1.1.1 server/KafkaServer.scala, controlledShutdown.
"""

import logging
import threading

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import BrokerUnreachableError, ConnectionLostError, KafkatoolError, ProtocolError
from kafkatool.core.protocol.messages.controlled_shutdown import API, ControlledShutdownRequest
from kafkatool.core.protocol.messages.error_codes import ErrorCode, error_name
from kafkatool.core.zookeeper.session import ZooKeeper
from kafkatool.core.zookeeper.znodes import BrokerZnode, ControllerZnode

log = logging.getLogger(__name__)

LONGEST_WITHOUT_ZOOKEEPER_MS = 15_000
"""So long a stop waits, in all, for a ZooKeeper that is gone. Who stops a broker kills it after 30 s or more."""


def ask_to_move_leaders(
    zookeeper: ZooKeeper, config: BrokerConfig, broker_id: int, broker_epoch: int | None, give_up: threading.Event
) -> bool:
    """Ask a few times at most; tell whether all was moved. Raises nothing: the broker goes down anyway.

    ``give_up`` set from outside ends the waiting between two tries.
    """
    tries = config.controlled_shutdown_max_retries
    for attempt in range(1, tries + 1):
        try:
            problem = _ask(zookeeper, config, broker_id, broker_epoch)
        except ConnectionLostError as e:  # asked again as long as there was time
            log.warning("controlled shutdown of broker %d: %s", broker_id, e)
            break
        except KafkatoolError as e:
            problem = str(e)
        if problem is None:
            log.info("the controller has moved all leaders away from broker %d", broker_id)
            return True
        log.warning("controlled shutdown of broker %d, try %d of %d: %s", broker_id, attempt, tries, problem)
        if attempt < tries and give_up.wait(config.controlled_shutdown_retry_backoff_ms / 1000):
            break
    log.warning("broker %d goes down though it may still lead partitions", broker_id)
    return False


def _ask(zookeeper: ZooKeeper, config: BrokerConfig, broker_id: int, broker_epoch: int | None) -> str | None:
    """Ask once; return None when all was moved, else what stood against it."""
    controller_node = zookeeper.get(ControllerZnode.PATH)
    if controller_node is None:
        return "there is no controller"
    controller_id = ControllerZnode.decode(controller_node.data)
    node = zookeeper.get(BrokerZnode.path(controller_id))
    if node is None:
        return f"controller {controller_id} is not registered"
    endpoint = BrokerZnode.decode(controller_id, node.data, node.czxid).endpoint(config.inter_broker_listener_name)
    if endpoint is None:
        return f"controller {controller_id} has no listener {config.inter_broker_listener_name}"
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=-1 if broker_epoch is None else broker_epoch)
    try:
        with Connection(
            endpoint.host,
            endpoint.port,
            client_id=str(broker_id),
            timeout_ms=config.controller_socket_timeout_ms,
            security=config.inter_broker_security,
        ) as connection:
            response = connection.send(API, config.protocol_versions.controlled_shutdown, request)
    except (BrokerUnreachableError, ProtocolError) as e:
        return f"controller {controller_id}: {e}"
    if response.error_code != ErrorCode.NONE:
        return f"controller {controller_id} answered {error_name(response.error_code)}"
    if response.remaining_partitions:
        return f"{len(response.remaining_partitions)} partitions are still led here"
    return None
