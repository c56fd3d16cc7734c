"""kcat, through its command line; see README.md here.

Producing, kcat tells nothing of single records: they count as acknowledged when it has ended with 0.
"""

import os
import re
import subprocess
import sys
import threading

from tests.compat.clients.common import Assignment, emit, emit_record, paced, run, stdin_ended, value

# It gives up on brokers that do not answer in five seconds, unless told.
KCAT = ["kcat", "-m60", *(["-F", os.environ["CLIENT_CONFIG"]] if "CLIENT_CONFIG" in os.environ else []), "-b"]
LAYOUT = r"%t\t%p\t%o\t%k\t%s\n"
REBALANCED = re.compile(rb"% Group \S+ rebalanced \(.*\): (assigned|revoked): (.*)")


def _produce(bootstrap: str, topic: str, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*KCAT, bootstrap, "-P", "-t", topic, "-K:", *options], stdin=subprocess.PIPE)


def _send(kcat: subprocess.Popen[bytes], prefix: str, number: int) -> None:
    assert kcat.stdin is not None
    kcat.stdin.write(b"%d:%s\n" % (number, value(prefix, number)))
    kcat.stdin.flush()


def _end(kcat: subprocess.Popen[bytes], count: int) -> None:
    assert kcat.stdin is not None
    kcat.stdin.close()
    if kcat.wait() == 0:
        for number in range(count):
            emit(acknowledged=number)
    sys.exit(kcat.returncode)


def produce(bootstrap: str, topic: str, prefix: str, count: int, codec: str) -> None:
    kcat = _produce(bootstrap, topic, "-z", codec)
    for number in range(count):
        _send(kcat, prefix, number)
    _end(kcat, count)


def load(bootstrap: str, topic: str, prefix: str) -> None:
    kcat = _produce(bootstrap, topic, "-X", "acks=all")
    count = 0
    for number in paced(stdin_ended()):
        _send(kcat, prefix, number)
        count = number + 1
    _end(kcat, count)


def _emit_lines(kcat: subprocess.Popen[bytes]) -> None:
    assert kcat.stdout is not None
    for line in kcat.stdout:
        topic, partition, offset, key, content = line.rstrip(b"\n").split(b"\t")
        emit_record(topic.decode(), int(partition), int(offset), key, content)


def consume(bootstrap: str, topics: str, count: int) -> None:
    for topic in topics.split(","):
        command = [*KCAT, bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-u", "-f", LAYOUT]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as kcat:
            _emit_lines(kcat)
        assert kcat.returncode == 0


def group(bootstrap: str, topic: str, name: str) -> None:
    command = [*KCAT, bootstrap, "-G", name, "-X", "auto.offset.reset=earliest", "-u", "-f", LAYOUT, topic]
    kcat = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    threads = [threading.Thread(target=f, args=[kcat]) for f in (_emit_lines, _emit_assignments)]
    for thread in threads:
        thread.start()
    stdin_ended().wait()
    kcat.terminate()
    for thread in threads:
        thread.join()
    sys.exit(kcat.wait())


def _emit_assignments(kcat: subprocess.Popen[bytes]) -> None:
    assert kcat.stderr is not None
    assignment = Assignment()
    for line in kcat.stderr:
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
        if match := REBALANCED.match(line):
            has_now = match[2] if match[1] == b"assigned" else b""
            assignment.note(int(p) for p in re.findall(rb"\[(\d+)\]", has_now))


if __name__ == "__main__":
    told = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"Version (\S+).*librdkafka (\S+)", told, re.DOTALL)
    assert version is not None, told
    emit(client=f"kcat {version[1]} (librdkafka {version[2]})")
    run({"produce": produce, "load": load, "consume": consume, "group": group})
