"""What tests of listeners share."""

import pytest

from kafkatool.broker.embedded.secured.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.open(tmp_path_factory.mktemp("authority"))
