"""Defaults of flags from ./.kafkatool.toml, else the user's ~/.config/kafkatool/config.toml (COM-7X).

A file is a list of flag names without the dashes, and may hold contexts, one for each cluster::

    context = "test"                      # which one, unless --context or KAFKATOOL_CONTEXT names another
    output = "json"                       # of all contexts

    [contexts.test]
    zookeeper = "localhost:2181"

    [contexts.prod]
    zookeeper = "zk1:2181,zk2:2181/kafka"
    cluster-id = "Jx1ZkR0LQ9-5E6gSvTVGow"

./.kafkatool.toml goes before the user's file, and within a file the context's value before the file's own. A context
named by --context or KAFKATOOL_CONTEXT ranks as what named it: its values go before all that the files say besides, and
those of --context before the environment's too, as the flag itself would.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from kafkatool.core.errors import UsageError

LOCAL_FILE: Final = ".kafkatool.toml"
KEYS: Final = (
    "zookeeper",
    "bootstrap-server",
    "output",
    "cluster-id",
    "zk-max-bytes",
    "partition-form",
    "zk-auth-file",
    "zk-tls-config-file",
    "zk-set-acl",
    "command-config",
    "listener",
)
CONTEXT: Final = "context"
CONTEXTS: Final = "contexts"
CHOSEN: Final = "kafkatool.context"  # where click keeps --context
_READ: Final = "kafkatool.settings"  # and the files' contents


class Settings(NamedTuple):
    """The content of one file. ``context`` is the one it chooses.

    ``wrong``: contexts that cannot be used, and why. That matters to nobody who uses another one.
    """

    values: Mapping[str, str]
    contexts: Mapping[str, Mapping[str, str]]
    context: str | None
    wrong: Mapping[str, UsageError]


def user_file() -> Path:
    """Return the user's own file, by the XDG rule."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kafkatool" / "config.toml"


def choose_context(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Take the value of ``--context``. Raises UsageError where no file has it."""
    if value is None:
        return
    known = _contexts(_files())
    if value not in known and not ctx.resilient_parsing:
        there = f"there are {', '.join(known)}" if known else f"neither {LOCAL_FILE} nor {user_file()} has any"
        raise UsageError(f"no context {value!r}: {there}")
    ctx.meta[CHOSEN] = value


def chosen_context() -> str | None:
    """Return the context that --context or KAFKATOOL_CONTEXT names; None: neither does."""
    return _named(click.get_current_context(silent=True))


def complete_contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of contexts for the shell."""
    return [name for name in _contexts(_files()) if name.startswith(incomplete)]


def setting(key: str) -> str | None:
    """Return the value of ``key`` in the files, by the order above. Raises UsageError on a bad file."""
    files = _files()
    named = _named(click.get_current_context(silent=True))
    chosen = named or next((file.context for file in files if file.context is not None), None)
    if chosen is not None and not any(chosen in file.contexts for file in files):
        raise UsageError(
            f"settings: context {chosen!r} is chosen, but there are {', '.join(_contexts(files)) or 'none'}"
        )
    for file in files:
        if chosen is not None and chosen in file.wrong:
            raise file.wrong[chosen]
    tables = [(file.contexts.get(chosen, {}) if chosen is not None else {}, file.values) for file in files]
    if named is not None:
        order = [table for table, _ in tables] + [values for _, values in tables]
    else:
        order = [found for both in tables for found in both]
    return next((found[key] for found in order if key in found), None)


class SettingOption(click.Option):
    """A flag that the environment and a settings file may give too; ``fallback`` is its default.

    A value of the context that the flag --context names goes before the environment's (COM-7X): somebody who types a
    cluster's name must not be sent to another one.
    """

    def __init__(self, param_decls: Sequence[str], *, fallback: str | int | None = None, **kwargs: Any) -> None:
        self._key = key = param_decls[0].removeprefix("--")
        variable = f"KAFKATOOL_{key.upper().replace('-', '_')}"
        super().__init__(param_decls, envvar=variable, default=lambda: setting(key) or fallback, **kwargs)

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return None where the settings go first: click then takes the default, which is their value."""
        typed = ctx.find_root().get_parameter_source(CONTEXT) is ParameterSource.COMMANDLINE
        if typed and any(self._key in file.contexts.get(_named(ctx) or "", {}) for file in _files()):
            return None
        return super().resolve_envvar_value(ctx)


def _named(ctx: click.Context | None) -> str | None:
    """Return the context that --context or KAFKATOOL_CONTEXT names."""
    return ctx.meta.get(CHOSEN) if ctx is not None else None


def _files() -> list[Settings]:
    """Read the files, once in a run of kt: each flag asks for them."""
    ctx = click.get_current_context(silent=True)
    known: list[Settings] | None = ctx.meta.get(_READ) if ctx is not None else None
    if known is None:
        known = [_read(path.resolve()) for path in (Path(LOCAL_FILE), user_file()) if path.is_file()]
        if ctx is not None:
            ctx.meta[_READ] = known
    return known


def _contexts(files: Sequence[Settings]) -> list[str]:
    return sorted({name for file in files for name in file.contexts})


def _read(path: Path) -> Settings:
    import tomllib

    try:
        _check_owner(path)
        values = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
        raise UsageError(f"cannot read settings {path}: {e}") from e
    tables = values.pop(CONTEXTS, {})
    if not isinstance(tables, dict):
        raise UsageError(f"settings {path}: contexts is not a table such as [contexts.prod]")
    contexts: dict[str, Mapping[str, str]] = {}
    wrong = {}
    for name, table in tables.items():
        try:
            contexts[name] = _table(f"{path}: [contexts.{name}]", table)
        except UsageError as e:
            contexts[name], wrong[name] = {}, e
    chosen = values.pop(CONTEXT, None)
    if chosen is not None and not isinstance(chosen, str):
        raise UsageError(f"settings {path}: context is not a name; the tables are [contexts.NAME]")
    return Settings(_table(str(path), values), contexts, chosen, wrong)


def _check_owner(path: Path) -> None:
    """Raise UsageError for another user's: he could send logins, and what is to be changed, to a cluster of his own."""
    if path.stat().st_uid not in (os.geteuid(), 0):
        raise UsageError(f"settings {path} belong to another user, who could send you to his own cluster: copy them")


def _table(where: str, values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        raise UsageError(f"settings {where} is not a table")
    for key, value in values.items():
        if key not in KEYS:
            raise UsageError(f"settings {where}: unknown setting {key!r}; there are {', '.join(KEYS)}")
        if isinstance(value, dict | list):
            raise UsageError(f"settings {where}: {key} is not a single value")
    return {key: str(value) for key, value in values.items()}
