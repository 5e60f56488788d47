"""The command line: which verbs there are, and what an error looks like from outside.

Exit codes: 0 done; 1 some episodes have no verdict, a check failed, or the run could not finish; 2 the input is wrong;
130 interrupted. A wrong input is one line on stderr that says what is wrong and what to do. Nothing heavy is imported
before a verb needs it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer

from harness.commands import compare, doctor, listing, plan, prepare, run, show, sweep, table

INTERRUPTED = 130

_CODES = {
    ("harness.env", "DataError"): 2,
    ("harness.env", "InfraError"): 1,
    ("harness.model", "UnsupportedOption"): 2,
    ("results.store", "CorruptRow"): 2,
    ("results.store", "StoreError"): 1,
}
"""Errors of the floors below, which know nothing of exit codes."""

app = typer.Typer(
    name="harness",
    help="Run, compare and tabulate methods for LLM agents. Start with: harness run --method strata --env webshop",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("list")(listing.list_names)
app.command("show")(show.show)
app.command("compare")(compare.compare)
app.command("table")(table.table)
app.command("sweep")(sweep.sweep)
prepare_app = typer.Typer(help="Make what a run starts from.", rich_markup_mode=None)
prepare_app.command("policy")(prepare.policy)
app.add_typer(prepare_app, name="prepare")
app.command("doctor")(doctor.doctor)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="show the traceback of an error")] = False,
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    """Options of every verb."""
    if version:
        from harness import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        argv: arguments without the program's name; those of the process by default. `--debug` may stand anywhere.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.showwarning = _show_warning
            code = app(arguments, prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # whoever read our output (head, less) has gone; the interpreter must not complain on its own last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        told = _told(error)
        if debug or told is None:
            raise
        message, code = told
        print(f"error: {message}", file=sys.stderr)
    if code == INTERRUPTED:
        print("interrupted; what was finished is kept, and the same command resumes", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> tuple[str, int] | None:
    """What an error says to the user, and its exit code; None for a fault of the program, which shows its traceback."""
    if hasattr(error, "format_message"):  # typer's own: wrong options and values (its class has moved between versions)
        context = getattr(error, "ctx", None)
        hint = f" ({context.command_path} --help)" if context is not None else ""
        return " ".join(str(error.format_message()).split()).rstrip(".") + hint, 2
    if hasattr(error, "exit_code") and not isinstance(error, typer.Exit):
        return str(error), int(error.exit_code)
    for (module, name), code in _CODES.items():
        if isinstance(error, _of(module, name)):
            return str(error), code
    return None


def _of(module: str, name: str) -> type[Exception] | tuple[()]:
    """An exception class, if its module was imported at all: whoever raised it did."""
    loaded = sys.modules.get(module)
    return getattr(loaded, name) if loaded is not None else ()


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print(f"warning: {message}", file=sys.stderr)
