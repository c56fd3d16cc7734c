"""What is taken away while nine clients run: a right, a user, a password. It ends what it covers, and disturbs nobody else.

Each client is a user of its own. Who is called ``…-512`` logs in by SCRAM-SHA-512, where a login holds for five seconds;
the logins of the others, by SCRAM-SHA-256, hold for ever.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from kafkatool import EmbeddedCluster
from kafkatool.broker.embedded.ports import HOST
from kafkatool.core.client.connection import Connection
from kafkatool.core.errors import LoginRefusedError
from kafkatool.core.model.acls import (
    Binding,
    Entry,
    Filter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from kafkatool.core.operations.acls import remove_acls
from kafkatool.core.operations.users import alter_user
from kafkatool.core.security.client_security import ClientSecurity
from tests.integration.clients_at_work import (
    AioConsumer,
    AioProducer,
    ClassicConsumer,
    ClassicProducer,
    ClientAtWork,
    LibrdkafkaConsumer,
    LibrdkafkaProducer,
)
from tests.steady import LASTING
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.usefixtures("unhurried")]

TOPICS: Final = ("a", "b")
REFUSALS: Final = ("Authorization", "AUTHORIZATION", "Authentication", "AUTHENTICATION")
"""In the names of errors that nobody gets from whom nothing was taken."""
MORE: Final = 5  # records that show that a client goes on
WORKERS: Final[dict[str, tuple[type[ClientAtWork], str]]] = {
    "librdkafka-writes": (LibrdkafkaProducer, "confluent"),
    "librdkafka-reads": (LibrdkafkaConsumer, "confluent"),
    "librdkafka-writes-512": (LibrdkafkaProducer, "confluent"),
    "classic-writes": (ClassicProducer, "kafka-python"),
    "classic-reads": (ClassicConsumer, "kafka-python"),
    "classic-writes-512": (ClassicProducer, "kafka-python"),
    "aio-writes": (AioProducer, "aiokafka"),
    "aio-reads": (AioConsumer, "aiokafka"),
    "aio-writes-512": (AioProducer, "aiokafka"),
}


def mechanism_of(user: str) -> str:
    return "SCRAM-SHA-512" if user.endswith("-512") else "SCRAM-SHA-256"


class Work:
    """A secured cluster, and nine clients at work on it. ``taken``: the parts of users' work that are taken from them."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.clients: dict[str, ClientAtWork] = {}
        self.taken: set[tuple[str, str]] = set()

    def admit(self, user: str) -> None:
        self.cluster.add_user(user)
        for topic in TOPICS:
            self.cluster.allow(user, "Write" if "writes" in user else "Read", topic=topic)
        if WORKERS[user][0] is LibrdkafkaConsumer:
            self.cluster.allow(user, "Read", group=user)
        self.start(user)

    def start(self, user: str) -> None:
        """Have a client begin with what logs the user in now."""
        kind, name = WORKERS[user]
        configuration = self.cluster.client(name, user=user, mechanism=mechanism_of(user))
        self.clients[user] = kind(user, configuration, TOPICS)
        self.clients[user].start()

    def all_go_on(self) -> None:
        """Wait until every client has got more done of everything that was not taken from it."""
        parts = {(user, topic) for user in WORKERS for topic in TOPICS} | {("librdkafka-reads", "commits")}
        before = {(user, part): self.clients[user].done[part] for user, part in parts - self.taken}

        def left() -> list[tuple[str, str]]:
            return [(user, part) for (user, part), n in before.items() if self.clients[user].done[part] < n + MORE]

        eventually(lambda: not left(), "the others to go on")
        hit = {user for user, _ in self.taken}
        wrong = [c for user, c in self.clients.items() if user not in hit and any(map(c.failures, REFUSALS))]
        assert not wrong, wrong
        print(sorted(self.clients.values(), key=str))

    def stays_out(self, user: str, *parts: str) -> None:
        """Wait until of those parts nothing is done any more, while it is tried and others go on."""
        client = self.clients[user]
        self.taken |= {(user, part) for part in parts}

        def fails() -> bool:
            done, failed = {part: client.done[part] for part in parts}, len(client.failed)

            def is_done() -> bool:
                return any(client.done[part] != n for part, n in done.items())

            eventually(lambda: is_done() or len(client.failed) >= failed + 2, f"{client} to fail or not")
            return not is_done()

        eventually(fails, f"{client} to be out")
        done = {part: client.done[part] for part in parts}
        self.all_go_on()
        assert {part: client.done[part] for part in parts} == done

    def logins(self, security: ClientSecurity) -> list[bool]:
        """Tell of each broker whether that login is taken."""

        def is_taken(port: int) -> bool:
            try:
                Connection(HOST, port, client_id="t", timeout_ms=120_000, security=security).close()
            except LoginRefusedError:
                return False
            return True

        return [is_taken(port) for port in self.cluster.files.require().ports.values()]

    def end(self) -> None:
        for client in self.clients.values():
            client.tell_to_end()
        for client in self.clients.values():
            client.join()

    def security(self, user: str) -> ClientSecurity:
        return self.cluster.security.as_user(user, mechanism_of(user))

    def delete(self, user: str) -> None:
        with self.cluster.zookeeper_session() as zk:
            alter_user(zk, user, {}, [mechanism_of(user)])


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    options = {**LASTING, "listener.name.sasl_ssl.scram-sha-512.connections.max.reauth.ms": "5000"}
    with EmbeddedCluster(
        2, directory=tmp_path_factory.mktemp("withdrawn"), options=options, security="sasl_ssl"
    ) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic)
        cluster.create_offsets_topic()
        made = Work(cluster)
        try:
            for user in WORKERS:
                made.admit(user)
            made.all_go_on()
            yield made
        finally:
            made.end()


def timed(what: str, done: Callable[[], bool]) -> None:
    """Wait for it, and print how long it took: a figure, not an assertion."""
    began = time.monotonic()
    eventually(done, what)
    print(f"{what}: after {time.monotonic() - began:.2f} s")


RIGHTS: Final = {
    "classic-writes": (Operation.WRITE, ResourceType.TOPIC, "a", "TopicAuthorizationFailed"),
    "librdkafka-writes": (Operation.WRITE, ResourceType.TOPIC, "b", "TOPIC_AUTHORIZATION_FAILED"),
    "aio-reads": (Operation.READ, ResourceType.TOPIC, "a", "TopicAuthorizationFailed"),
    "librdkafka-reads": (Operation.READ, ResourceType.GROUP, "librdkafka-reads", "GROUP_AUTHORIZATION_FAILED"),
}


@pytest.mark.spec("SEC-117", "SEC-79", "SEC-87")
@pytest.mark.parametrize("user", RIGHTS)
def test_a_right_that_is_taken_away_ends_what_it_covers_and_nothing_else(work: Work, user: str) -> None:
    operation, kind, name, refusal = RIGHTS[user]
    entry = Entry(f"User:{user}", "*", operation, Permission.ALLOW)
    with work.cluster.zookeeper_session() as zk:
        assert remove_acls(zk, Filter.just(Binding(ResourcePattern(kind, name, PatternType.LITERAL), entry)))
    timed(f"{user} is refused", lambda: work.clients[user].failures(refusal) > 0)
    work.stays_out(user, name if kind is ResourceType.TOPIC else "commits")


@pytest.mark.spec("SEC-117", "SEC-67")
def test_a_deleted_user_cannot_log_in_and_who_is_in_stays(work: Work) -> None:
    security = work.security("classic-reads")
    assert work.logins(security) == [True, True]
    work.delete("classic-reads")
    timed("the deleted user cannot log in", lambda: work.logins(security) == [False, False])
    work.all_go_on()  # he, too: nothing asks for another login


@pytest.mark.spec("SEC-117", "SEC-70", "SEC-67")
def test_a_deleted_user_whose_login_holds_for_five_seconds_is_out(work: Work) -> None:
    user = "librdkafka-writes-512"
    work.delete(user)
    timed("the deleted user is out", lambda: work.clients[user].failures("_AUTHENTICATION") > 0)
    work.stays_out(user, *TOPICS)


@pytest.mark.spec("SEC-117", "SEC-70", "SEC-67")
def test_a_changed_password_ends_the_logins_by_the_old_one_alone(work: Work) -> None:
    user, before = "aio-writes-512", work.security("aio-writes-512")
    work.cluster.add_user(user, "another-secret")
    timed("the old password is refused", lambda: work.logins(before) == [False, False])
    old = work.clients[user]
    work.stays_out(user, *TOPICS)
    work.start(user)
    work.taken -= {(user, topic) for topic in TOPICS}
    done = dict(old.done)
    work.all_go_on()  # with the new one he is in
    assert dict(old.done) == done
    old.tell_to_end()
    old.join()
