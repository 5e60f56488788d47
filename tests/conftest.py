"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.toys import PLUGIN


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toy environment, methods and model as an installed plug-in, in this process and in those that it starts."""
    root = str(Path(__file__).parent.parent)
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
