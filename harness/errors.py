"""Errors that a user can act on. The command line prints them as one line and exits with their code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """The input is wrong: exit code 2. The message names the thing, the value and the way out."""

    exit_code = 2


class RunError(RuntimeError):
    """The run could not finish: exit code 1. What was finished is kept."""

    exit_code = 1


def unknown(kind: str, name: str, known: Iterable[str], *, hint: str = "") -> InputError:
    """An error for a name that is not known, with the nearest one that is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f'; did you mean "{near[0]}"?' if near else f"; known: {', '.join(names) or 'none'}"
    return InputError(f'unknown {kind} "{name}"{guess}{f" ({hint})" if hint else ""}')
