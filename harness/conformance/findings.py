"""What a check says, and how checks are run: one that raises anything has failed, and never stops the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from harness.errors import unknown

Outcome = Literal["pass", "fail", "skip"]
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: what was looked at.
        outcome: pass, fail, or skip where the plug-in promises nothing of the kind.
        reason: why it failed or was skipped.
    """

    check: str
    outcome: Outcome
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.outcome}  {self.check}{f': {self.reason}' if self.reason else ''}"


class Broken(Exception):
    """The plug-in breaks the contract; the message says how."""


class Skipped(Exception):
    """There is nothing to check; the message says why."""


def require(holds: bool, otherwise: str) -> None:
    """Raise Broken unless something holds."""
    if not holds:
        raise Broken(otherwise)


def run_checks(
    checks: Mapping[str, Callable[[C], None]], context: C, only: Collection[str] | None = None
) -> list[Finding]:
    """Run checks one after the other.

    Args:
        checks: name -> function that raises Broken, Skipped, or whatever the plug-in raises.
        context: what each is called with.
        only: names to run; all by default.

    Raises:
        InputError: `only` names a check that there is not.
    """
    for name in only or ():
        if name not in checks:
            raise unknown("check", name, checks)
    return [_run(name, check, context) for name, check in checks.items() if only is None or name in only]


def _run(name: str, check: Callable[[C], None], context: C) -> Finding:
    try:
        check(context)
    except Skipped as skipped:
        return Finding(name, "skip", str(skipped))
    except Broken as broken:
        return Finding(name, "fail", str(broken))
    except Exception as error:  # noqa: BLE001 - whatever a plug-in raises is a finding about it
        return Finding(name, "fail", f"raised {type(error).__name__}: {error}")
    return Finding(name, "pass")
