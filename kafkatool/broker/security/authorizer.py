"""Who may do what: decisions from the ACLs of the cluster, remembered until one changes (SEC-75, 76, 80 to 82)."""

import logging
from collections.abc import Collection
from typing import Final

from kafkatool.broker.runtime.few_lines import FewLines
from kafkatool.broker.security.acl_table import AclTable
from kafkatool.broker.security.principal import Principal
from kafkatool.core.model.acls import (
    Operation,
    PatternType,
    ResourceType,
    host_as_java_writes_it,
)

log = logging.getLogger("kafka.authorizer.logger")

_MOST_REMEMBERED: Final = 100_000
_LONGEST_REMEMBERED: Final = 249  # characters, as of a topic: a client may ask for names of 32 KB that nothing has
_LINES_A_SECOND: Final = 100

_Question = tuple[Principal, str, Operation, ResourceType, str | None]  # None: of any name


class Authorizer:
    """Decides without a lock and without asking ZooKeeper; ``follow`` gives it another table."""

    def __init__(self, super_users: Collection[str], *, allow_without_acl: bool) -> None:
        """Take ``super_users``, who may do all, and what holds for a resource that no entry is about."""
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        # Together, so that no answer from an old table gets among those of a new one.
        self._now: tuple[AclTable, dict[_Question, bool]] = (AclTable(), {})
        self._refusals = FewLines(_LINES_A_SECOND, 1)

    @property
    def table(self) -> AclTable:
        """Return the entries that decisions go by."""
        return self._now[0]

    def follow(self, table: AclTable) -> None:
        """Go by these entries from now on; what was answered before is forgotten."""
        self._now = (table, {})

    def allows(
        self, who: Principal, address: str, operation: Operation, kind: ResourceType, name: str | None, request: str
    ) -> bool:
        """Tell whether ``who``, at that address, may do that. ``name`` None: to some resource of the type.

        ``request`` names the API in the log, where a refusal is told; empty: what is asked only decides what is shown.
        """
        table, answers = self._now
        question = (who, address, operation, kind, name)
        answer = answers.get(question)
        if answer is None:
            answer = self._decide(table, question)
            if name is None or len(name) <= _LONGEST_REMEMBERED:
                if len(answers) >= _MOST_REMEMBERED:
                    answers.clear()
                answers[question] = answer
        if request and not answer:
            self._tell(question, request)
        return answer

    def _decide(self, table: AclTable, question: _Question) -> bool:
        who, address, operation, kind, name = question
        principal = str(who)
        if principal in self._super_users:
            return True
        host = host_as_java_writes_it(address)
        if name is None:
            decided = table.decide_any(principal, host, operation, kind)
        else:
            decided = table.decide(principal, host, operation, kind, name)
        return self._allow_without_acl if decided is None else decided

    def _tell(self, question: _Question, request: str) -> None:
        """Log a refusal in Kafka's words, unless there were many within the second; of those there is a count."""
        left_out = self._refusals.admit()
        if left_out is None:
            return
        if left_out:
            log.info("%d more refusals within a second are not told one by one", left_out)
        who, address, operation, kind, name = question
        log.info(
            "Principal = %s is Denied Operation = %s from host = %s on resource = %s:%s:%s for request = %s with "
            "resourceRefCount = 1",
            who,
            operation.word,
            host_as_java_writes_it(address),
            kind.word,
            PatternType.LITERAL.name,
            "*" if name is None else name[:_LONGEST_REMEMBERED],
            request,
        )
