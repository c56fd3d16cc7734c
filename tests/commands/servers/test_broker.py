"""kt broker start, where it does not come to start one."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

WRONG = {
    "both": (
        "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT\n",
        "inter.broker.listener.name and security.inter.broker.protocol: only one of them can be set",
    ),
    "no keystore": (
        "security.inter.broker.protocol=SSL\n",
        "listener SSL: a TLS listener needs ssl.keystore.location, or ssl.keystore.key and .certificate.chain",
    ),
    "no such name": (
        "inter.broker.listener.name=INNER\n",
        "inter.broker.listener.name=INNER: no advertised listener of that name for the brokers themselves",
    ),
    "no such protocol": (
        "security.inter.broker.protocol=SASL_SSL\n",
        "security.inter.broker.protocol=SASL_SSL: no advertised listener of that name for the brokers themselves",
    ),
    "no mechanism": (
        "security.inter.broker.protocol=SASL_PLAINTEXT\nsasl.enabled.mechanisms=PLAIN\n",
        "sasl.mechanism.inter.broker.protocol=GSSAPI: must be one of sasl.enabled.mechanisms of SASL_PLAINTEXT that this "
        "broker serves",
    ),
}
LISTENER = {"no keystore": "SSL", "no mechanism": "SASL_PLAINTEXT"}


@pytest.mark.spec("SEC-47", "SEC-54")
@pytest.mark.parametrize("case", WRONG)
def test_what_refuses_the_start_is_one_line_before_anything_is_bound(case: str, tmp_path: Path) -> None:
    given, told = WRONG[case]
    with socket.create_server(("127.0.0.1", 0)) as taken:  # had it come to binding, that would be the error
        port = taken.getsockname()[1]
        protocol = LISTENER.get(case, "PLAINTEXT")
        config = tmp_path / "server.properties"
        config.write_text(
            f"{given}listeners={protocol}://127.0.0.1:{port}\nlog.dirs={tmp_path / 'data'}\nzookeeper.connect=127.0.0.1:1\n"
        )
        command = [sys.executable, "-m", "kafkatool", "broker", "start", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"kt: {told}"
    assert "Traceback" not in done.stderr
