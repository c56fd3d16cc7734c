"""What is said when another broker refuses this one's login: an error, once a minute for each peer (SEC-49).

It is tried again as often as any other connection: credentials may be on their way.
"""

import logging
from typing import Final

from kafkatool.broker.runtime.few_lines import FewLines
from kafkatool.core.errors import LoginRefusedError

log = logging.getLogger(__name__)

_LINES: Final = FewLines(1, 60)


def tell_of_refused_login(own_id: int | str, error: LoginRefusedError) -> None:
    """Log it, unless this broker's log has told of that peer within the minute. Several brokers may share a process."""
    if _LINES.admit((str(own_id), error.peer)) is not None:
        log.error("broker %s cannot log in to another: %s", own_id, error)
