"""What ZooKeeper has of a broker's settings, held against its file."""

import pytest

from kafkatool.broker.settings.config import BrokerConfig
from kafkatool.broker.settings.description import DYNAMIC_SETTINGS, THREAD_COUNTS, BrokerOverrides
from kafkatool.broker.settings.dynamic import check_thread_counts, in_force
from kafkatool.core.errors import ConfigError


def config(**properties: str) -> BrokerConfig:
    named = {name.replace("_", "."): text for name, text in properties.items()}
    return BrokerConfig.from_properties({"zookeeper.connect": "none:1", **named})


@pytest.mark.spec("BRK-125")
@pytest.mark.parametrize("name", sorted(DYNAMIC_SETTINGS))
def test_each_dynamic_setting_is_one_of_the_broker_and_taken_over(name: str) -> None:
    texts = {
        "compression.type": "lz4",
        "log.cleaner.min.cleanable.ratio": "0.125",
        "log.cleanup.policy": "compact",
        "log.message.timestamp.type": "LogAppendTime",
        "max.connections.per.ip.overrides": "10.0.0.1:7",
    }
    before = config()
    value = getattr(before, name.replace(".", "_"))
    text = texts.get(name, str(not value).lower() if isinstance(value, bool) else "77")
    after = in_force(before, BrokerOverrides({}, {name: text}))
    assert getattr(after, name.replace(".", "_")) != value
    assert in_force(before, BrokerOverrides({name: text}, {name: "nonsense"})) == after, "its own counts"


@pytest.mark.spec("BRK-125")
@pytest.mark.parametrize("name", THREAD_COUNTS)
def test_threads_are_at_most_doubled_or_halved(name: str) -> None:
    def changed(number: int) -> BrokerConfig:
        return in_force(config(), BrokerOverrides({name: str(number)}, {}))

    for before, after in ((8, 16), (8, 4), (9, 4), (1, 2)):
        check_thread_counts(changed(before), changed(after))
    failed = f"Dynamic thread count update validation failed for {name}="
    with pytest.raises(ConfigError, match=f"{failed}17, value should not be greater than double the current value 8"):
        check_thread_counts(changed(8), changed(17))
    with pytest.raises(ConfigError, match=f"{failed}3, value should be at least half the current value 8"):
        check_thread_counts(changed(8), changed(3))
