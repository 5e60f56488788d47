"""`harness prepare`: make what a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def policy(
    env: Annotated[str, typer.Argument(metavar="ENV", help="environment whose mini policy is made")],
    out: Annotated[Path | None, typer.Option("--out", help="folder; that of the shipped policy by default")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="of demonstrations and training")] = 0,
) -> None:
    """Clone a scripted expert into a mini policy.

    Writes weights, vocabulary, recipe and card.
    """
    raise NotImplementedError
