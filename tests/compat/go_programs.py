"""Programs in Go that administer Kafka: others' tools, built from their modules, and ours of kafka-go (clients/kafka_go)."""

from pathlib import Path
from typing import Final

from tests.compat.client_programs import SOURCES, build, made, tool

MODULES: Final = {
    "kcl": ("github.com/twmb/kcl", "v0.18.0"),
    "kafkactl": ("github.com/deviceinsight/kafkactl/v5", "v5.20.0"),
    "topicctl": ("github.com/segmentio/topicctl/cmd/topicctl", "v2.0.2"),
}
KAFKA_GO: Final = "0.4.51"
"""As clients/kafka_go/go.mod has it."""


def version_of(program: str) -> str:
    """Return what the table says of it."""
    return KAFKA_GO if program == "kafka-go" else MODULES[program][1].removeprefix("v")


def executable(program: str) -> Path:
    """Return the program, built once. Raises MissingError, saying why it cannot be."""
    go = tool("go", Path("/usr/local/go/bin"))
    if program == "kafka-go":
        source = SOURCES / "kafka_go"
        sources = [source / name for name in ("main.go", "go.mod", "go.sum")]
        return made("kafka-go", sources, lambda home: build([go, "build", "-o", home / program, "."], source)) / program
    module, version = MODULES[program]

    def install(home: Path) -> None:
        build([go, "install", f"{module}@{version}"], home, {"GOBIN": str(home)})

    return made(f"{program}-{version}", [], install) / program
