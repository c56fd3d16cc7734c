"""The keys that Java's clients know, so that a word that nobody knows is told as a mistake (SEC-33).

Files are shared with producers, consumers and admin clients: what those know and kt does not need is no mistake. Source:
CommonClientConfigs, SaslConfigs, SslConfigs, Producer-, Consumer- and AdminClientConfig of Kafka 0.10 to 4.1.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final


def _below(prefix: str, names: str) -> list[str]:
    return [prefix + name for name in names.split()]


KNOWN: Final = frozenset(
    [
        *_below(
            "",
            "bootstrap.servers bootstrap.controllers client.dns.lookup client.id client.rack metadata.max.age.ms "
            "metadata.max.idle.ms metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms "
            "send.buffer.bytes receive.buffer.bytes reconnect.backoff.ms reconnect.backoff.max.ms retries "
            "retry.backoff.ms retry.backoff.max.ms request.timeout.ms default.api.timeout.ms "
            "connections.max.idle.ms socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms "
            "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms "
            "auto.include.jmx.reporter enable.metrics.push config.providers interceptor.classes security.protocol "
            "security.providers acks batch.size linger.ms buffer.memory max.block.ms max.request.size "
            "compression.type compression.gzip.level compression.lz4.level compression.zstd.level key.serializer "
            "value.serializer delivery.timeout.ms max.in.flight.requests.per.connection enable.idempotence "
            "transactional.id transaction.timeout.ms transaction.two.phase.commit.enable partitioner.class "
            "partitioner.ignore.keys partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms "
            "timeout.ms block.on.buffer.full metadata.fetch.timeout.ms group.id group.instance.id group.protocol "
            "group.remote.assignor max.poll.records max.poll.interval.ms session.timeout.ms heartbeat.interval.ms "
            "enable.auto.commit auto.commit.interval.ms auto.offset.reset fetch.min.bytes fetch.max.bytes "
            "fetch.max.wait.ms max.partition.fetch.bytes check.crcs key.deserializer value.deserializer "
            "partition.assignment.strategy exclude.internal.topics isolation.level allow.auto.create.topics "
            "share.acknowledgement.mode share.acquire.mode",
        ),
        *_below(
            "ssl.",
            "protocol provider cipher.suites enabled.protocols key.password keystore.type keystore.location "
            "keystore.password keystore.key keystore.certificate.chain truststore.type truststore.location "
            "truststore.password truststore.certificates keymanager.algorithm trustmanager.algorithm "
            "endpoint.identification.algorithm secure.random.implementation engine.factory.class",
        ),
        *_below(
            "sasl.",
            "mechanism jaas.config client.callback.handler.class login.callback.handler.class login.class "
            "login.connect.timeout.ms login.read.timeout.ms login.retry.backoff.ms login.retry.backoff.max.ms "
            "login.refresh.window.factor login.refresh.window.jitter login.refresh.min.period.seconds "
            "login.refresh.buffer.seconds kerberos.service.name kerberos.kinit.cmd "
            "kerberos.ticket.renew.window.factor kerberos.ticket.renew.jitter kerberos.min.time.before.relogin",
        ),
    ]
)
UNHEEDED: Final = frozenset(
    _below(
        "",
        "client.dns.lookup config.providers metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms "
        "receive.buffer.bytes reconnect.backoff.max.ms security.providers send.buffer.bytes "
        "socket.connection.setup.timeout.max.ms",
    )
)
"""What Java's admin client does otherwise for, and kt does not: to be told, where keys of other clients are passed over."""
_OPEN: Final = ("sasl.oauthbearer.", "config.providers.")
"""What begins so is not told apart: newer clients know more, and providers have names of their own."""


def unheeded(keys: Iterable[str]) -> str | None:
    """Say which keys would change what an admin client does and change nothing here; None: there are none."""
    found = sorted(key for key in keys if key in UNHEEDED)
    return f"without effect here: {', '.join(found)}" if found else None


def mistakes(keys: Iterable[str]) -> list[str]:
    """Say of each key that no client knows which it is, and which known one is nearest, if one is near."""
    told = []
    for key in keys:
        if key not in KNOWN and not key.startswith(_OPEN):
            near = get_close_matches(key, KNOWN, n=1, cutoff=0.75)
            told.append(f"unknown key {key}" + (f": is it {near[0]}?" if near else ""))
    return told
