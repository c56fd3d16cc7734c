"""Files with credentials: read with a look at who else may, written so that nobody else ever could (SEC-6, SEC-45)."""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from kafkatool.core.errors import ConfigError

_OTHERS = 0o077


class CredentialFile(NamedTuple):
    """The text of a file, and what is to be warned of."""

    text: str
    notes: tuple[str, ...] = ()


class CredentialBytes(NamedTuple):
    """The content of a file, and what is to be warned of."""

    content: bytes
    notes: tuple[str, ...] = ()


def read_credential_bytes(path: Path) -> CredentialBytes:
    """Read a file once. Raises OSError; ConfigError where it is neither the user's nor root's. A pipe is exempt."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        content = file.read()
    if not stat.S_ISREG(status.st_mode):
        return CredentialBytes(content)
    check_owner(path, status)
    if status.st_mode & _OTHERS:
        return CredentialBytes(content, (f"{path} can be read by other users of this machine: chmod 600 {path}",))
    return CredentialBytes(content)


def check_owner(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError for what is neither the user's nor root's: whose it is can change it.

    Root is no exception: it would trust what another user may put there at any moment, such as a mounted file's owner
    outside of a container.
    """
    own = os.geteuid()
    if status.st_uid not in (own, 0):
        raise ConfigError(
            f"{path} belongs to user {status.st_uid}, who could change it, and this is user {own}: run as that user, "
            f"chown {own} {path}, or use a copy"
        )


def read_credential_file(path: Path, *, encoding: str = "utf-8") -> CredentialFile:
    """Read the text of a file as ``read_credential_bytes``. Raises ConfigError, too, when it cannot be read."""
    try:
        content, notes = read_credential_bytes(path)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    try:
        return CredentialFile(content.decode(encoding), notes)
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not {encoding} text") from e


def write_credential_file(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whatever the umask: beside it first, then in its place, whole.

    No link is followed.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)  # of a process of the same number that was killed
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def make_private_directory(path: Path) -> None:
    """Make it, for its owner alone. Raises ConfigError for another user's, who could change all that is in it; OSError."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise ConfigError(f"{path} belongs to another user, who could change what is in it: use another directory")
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
