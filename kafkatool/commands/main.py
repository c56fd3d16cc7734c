"""``kt``: the group, its subcommands loaded when they are named, and the one place where errors become exit codes.

Exit codes (COM-3X): 0 all done, 1 an item failed or was refused, 2 bad usage or input file, 130 interrupted.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NoReturn

import click

from kafkatool import __version__
from kafkatool.commands.lazy import COMPLETE_VARIABLE, LazyGroup
from kafkatool.commands.shared.credentials import refuse_secrets
from kafkatool.commands.shared.output import CURRENT_OUTPUT, Answer, Output, error_item, paint
from kafkatool.commands.shared.printable import one_line, say
from kafkatool.commands.shared.settings import choose_context, complete_contexts
from kafkatool.commands.shared.termination import interruptions_kept
from kafkatool.core.errors import KafkatoolError, UsageError

INTERRUPTED: Final = 130
BEFORE_THE_COMMAND: Final = ("--context", "--debug")  # flags of kt itself
BEHIND_A_FLAG: Final = {  # what a bare word is most often meant for
    "topics": "--topic",
    "elect": "--topic",
    "reassign": "--reassignment-json-file",
    "logs": "--logs",
    "broker": "--config",
}


class RootGroup(LazyGroup):
    """The outermost group: what a command raises becomes one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; in JSON and TSV an error is shown on stdout too, so that a parser never finds nothing.

        At its end is said what brokers left out of their answers.
        """
        try:
            code = super().invoke(ctx)
            out: Output | None = ctx.meta.get(CURRENT_OUTPUT)
            return code if out is None else out.finish(code if isinstance(code, int) else 0)
        except KafkatoolError as e:
            out = ctx.meta.get(CURRENT_OUTPUT)
            if out is not None:
                out.finish(1)
            if out is not None and not (out.is_text or out.shown or isinstance(e, UsageError)):
                out.show(Answer((), (), (), errors=[error_item(e)]))
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run and exit with the code the command returns, whatever ``standalone_mode`` says.

        The mapping of errors below is the command line's contract.
        """
        completing = COMPLETE_VARIABLE in os.environ
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            refuse_secrets(sys.argv[1:] if args is None else args)
            with interruptions_kept():
                code = super().main(args, prog_name or "kt", complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()
        except click.exceptions.Exit as e:
            code = e.exit_code
        except click.exceptions.NoArgsIsHelpError as e:
            e.show()
            code = e.exit_code
        except click.UsageError as e:
            where = e.ctx.command_path if e.ctx is not None else "kt"
            hint = f"{where} --help shows examples"
            if isinstance(e, click.NoSuchOption) and e.option_name in BEFORE_THE_COMMAND:
                hint = f"it goes before the command: kt {e.option_name} … {where.removeprefix('kt ')}"
            elif isinstance(e, click.NoSuchOption) and where == "kt":
                hint = f"flags of a command go behind it: kt topics list {e.option_name} …"
            elif "unexpected extra argument" in e.message and (flag := BEHIND_A_FLAG.get(where.split()[1])):
                hint = f"say {flag} before it"
            say(f"{where}: {_one_line(e.format_message())} ({hint})", err=True)
            code = e.exit_code
        except click.ClickException as e:
            e.show()
            code = e.exit_code
        except (KeyboardInterrupt, click.Abort):
            say("interrupted", err=True)
            code = INTERRUPTED
        except BrokenPipeError:
            _silence_stdout()
            code = 1
        except KafkatoolError as e:
            if debug:
                import traceback

                say(traceback.format_exc(), err=True, nl=False)
            if not completing:  # in the middle of a line being typed there is no room for an error (COM-8X)
                text = f"kt: {_one_line(e)}" + (f" ({e.now})" if e.now else "")
                say(paint(text, "red", err=True), err=True)
            code = 2 if isinstance(e, UsageError) else 1
        sys.exit(code if isinstance(code, int) else 0)


def _one_line(error: BaseException | str) -> str:
    return one_line(" ".join(str(error).split("\n"))) or type(error).__name__


def _silence_stdout() -> None:
    """Point stdout nowhere: the reader went (``| head``), and the interpreter's last flush must not complain."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is not a file here (a test runner's buffer): nothing to flush


def _print_no_traceback(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Report a fault of kt itself in one line, and how to get what a bug report needs."""
    sys.stderr.write(f"kt: internal error: {kind.__name__}: {_one_line(error)} (--debug shows where)\n")


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        import logging

        sys.excepthook = sys.__excepthook__
        from kafkatool.commands.shared.server_log import OneLine

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(OneLine("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logging.basicConfig(level=logging.DEBUG, handlers=[handler])
        logging.getLogger("py4j").setLevel(logging.WARNING)


COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "topics": ("kafkatool.commands.topics.group:topics", "Create, list, describe, alter and delete topics."),
    "reassign": ("kafkatool.commands.reassign.command:reassign", "Move partitions' replicas to other brokers."),
    "elect": ("kafkatool.commands.elect.command:elect", "Give leadership back to the preferred replicas."),
    "replica-verify": ("kafkatool.commands.replica_verify.command:replica_verify", "Compare the data of all replicas."),
    "brokers": ("kafkatool.commands.brokers.command:brokers", "Show who holds and leads how much."),
    "health": ("kafkatool.commands.health.command:health", "Say on one page whether the cluster is well."),
    "drain": ("kafkatool.commands.drain.command:drain", "Empty brokers, from a plan to the proof."),
    "acls": ("kafkatool.commands.acls.group:acls", "List, add and remove ACLs."),
    "users": ("kafkatool.commands.users.group:users", "List and alter users with SCRAM credentials."),
    "zk-acl": ("kafkatool.commands.zk_acl.command:zk_acl", "Close a cluster's znodes to others, or open them."),
    "transactions": (
        "kafkatool.commands.transactions.group:transactions",
        "Look at transactions; find and abort hanging ones.",
    ),
    "migrate": ("kafkatool.commands.migrate.group:migrate", "Look at a migration from ZooKeeper to KRaft."),
    "logs": ("kafkatool.commands.logs.group:logs", "Merge and analyse state-change logs of all brokers."),
    "cluster": ("kafkatool.commands.servers.cluster:cluster", "Run a whole cluster on this machine."),
    "broker": ("kafkatool.commands.servers.broker:broker", "Run one broker from a server.properties file."),
    "controller": ("kafkatool.commands.servers.controller:controller", "Rule a cluster of Kafka brokers from outside."),
    "completion": ("kafkatool.commands.completion:completion", "Print the completion script of a shell."),
}


@click.command(
    cls=RootGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Settings come from the flag, else KAFKATOOL_… in the environment, else ./.kafkatool.toml, else "
    "~/.config/kafkatool/config.toml; a table [contexts.prod] there is for --context prod, which goes "
    "before the environment. Exit codes: 0 done, 1 something failed or was refused, 2 bad usage.",
)
@click.version_option(__version__, prog_name="kt")
@click.option(
    "--context",
    metavar="NAME",
    envvar="KAFKATOOL_CONTEXT",
    is_eager=True,
    expose_value=False,
    callback=choose_context,
    shell_complete=complete_contexts,
    help="Use the settings file's [contexts.NAME], one of several clusters. [env KAFKATOOL_CONTEXT]",
)
@click.option("--debug", is_flag=True, expose_value=False, callback=_debug, help="Show tracebacks and log to stderr.")
def kt() -> None:
    """Admin tools for Kafka, through ZooKeeper or through its brokers; and brokers of its own."""


def main() -> None:
    """Run kt as the console script."""
    sys.excepthook = _print_no_traceback
    try:
        kt.main()
    finally:
        gc.freeze()  # else the interpreter looks through all there is before it ends: 15 ms
