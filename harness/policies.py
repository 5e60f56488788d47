"""Where the mini policies lie that ship with the environments: `envs/<env>/policy/`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def policy_folder(env: str) -> Path | None:
    """The shipped mini policy of an environment, if there is one."""
    folder = Path(str(files("envs"))) / env.replace("-", "_") / "policy"
    return folder if (folder / "manifest.json").is_file() else None
