"""What options mean when they are not given."""

from __future__ import annotations

import pytest

from harness.commands import options


@pytest.mark.parametrize(
    ("devices", "expected"), [(("auto",), 1), (("cpu", "cuda:1"), 1), (("cpu",), None), ((), None)]
)
def test_one_worker_by_default_where_a_card_would_hold_a_model_for_each(tmp_path, monkeypatch, devices, expected):
    card = tmp_path / "card"
    monkeypatch.setattr(options, "ACCELERATORS", (str(card),))
    assert options.default_workers(*devices) == options.cores() >= 1, "no card here"
    monkeypatch.setattr(options, "cores", lambda: 7)
    card.touch()
    assert options.default_workers(*devices) == (expected or 7)
