"""Errors that a user can act on. The command line prints them as one line and exits with their code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class InputError(ValueError):
    """The input is wrong: exit code 2. The message names the thing, the value and the way out."""

    exit_code = 2


class RunError(RuntimeError):
    """The run could not finish: exit code 1. What was finished is kept."""

    exit_code = 1


class Diverged(RunError):
    """Training produced numbers that are beyond use, and stopped before it took a step with them.

    Attributes:
        batch: the rows at fault as plain JSON values, for whoever looks into it.
    """

    def __init__(self, message: str, batch: Sequence[Any]) -> None:
        super().__init__(message)
        self.batch = batch


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> InputError:
    """An error for a name that is not known, with the nearest one that is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f'; did you mean "{near[0]}"?' if near else f"; known: {', '.join(names) or 'none'}"
    return InputError(f'unknown {kind} "{name}"{guess}{f" ({hint})" if hint else ""}')
