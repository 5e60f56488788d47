"""Fixtures of the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.toys import PLUGIN

# No deadline: machines are shared, and a slow example is no bug. Derandomised: the same examples on every machine.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test goes first, so that the others run beside it and none waits for it."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Toy environment, methods and model as an installed plug-in, in this process and in those that it starts."""
    root = str(Path(__file__).parent.parent)
    monkeypatch.syspath_prepend(str(PLUGIN))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, str(PLUGIN), os.environ.get("PYTHONPATH", "")]))
