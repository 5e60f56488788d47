"""Supervised fine-tuning: it learns, it is the mean over tokens, and a seed decides all of it."""

from __future__ import annotations

import numpy as np
import pytest

from harness.model import OptimizerConfig, Prompt, Request, Sampling, TrainingRow, UnsupportedOption
from harness.models.mini import MiniConfig, MiniModel, WordTokenizer
from harness.training.sft import fine_tune, warmup_cosine

WORDS = WordTokenizer.of(["a b c d e f g h go"])
SHAPE = MiniConfig(hidden=16, layers=2, heads=2, kv_heads=1, ff=32, max_positions=32)
RATE = OptimizerConfig(lr=1e-2, weight_decay=0.0)


def fresh() -> MiniModel:
    return MiniModel.fresh(WORDS, SHAPE, seed=0)


def row(prompt: str, response: str) -> TrainingRow:
    return TrainingRow(tuple(WORDS.encode(prompt)), (*WORDS.encode(response), WORDS.eos_token_id))


ROWS = [row(f"go {letter}", f"{letter} {letter}") for letter in "abcdefgh"] + [row("go", "a b c d e f g")]


def test_it_learns_what_it_is_shown() -> None:
    model = fresh()
    losses = fine_tune(model, ROWS, epochs=60, optimizer=RATE, batch_size=4, seed=0)
    assert len(losses) == 60
    assert losses[0] > 1.5
    assert losses[-1] < 0.1
    ask = [Request((), Prompt.user("go c"), Sampling(temperature=0, max_tokens=5))]
    assert model.generate(ask)[0].text == "c c"
    assert model.version == 60 * 3


def test_the_loss_is_the_mean_over_tokens() -> None:
    """The first epoch of one batch is met with the first weights, so its loss can be computed from them."""
    model = fresh()
    expected = -np.concatenate(model.logprobs(ROWS, temperature=1.0)).mean()
    assert fine_tune(model, ROWS, epochs=1, optimizer=RATE, batch_size=9, seed=0) == pytest.approx([expected], abs=1e-5)


def test_weights_scale_rows() -> None:
    model = fresh()
    per_row = [-values.sum() for values in model.logprobs(ROWS, temperature=1.0)]
    weights = [0.2] * 8 + [1.0]
    tokens = sum(len(r.ids) for r in ROWS)
    expected = sum(w * loss for w, loss in zip(weights, per_row, strict=True)) / tokens
    losses = fine_tune(model, ROWS, epochs=1, optimizer=RATE, batch_size=9, seed=0, weights=weights)
    assert losses == pytest.approx([expected], abs=1e-5)


def test_a_seed_decides_the_order_and_micro_batches_do_not() -> None:
    def train(seed: int, max_tokens: int = 8192) -> list[float]:
        return fine_tune(fresh(), ROWS, epochs=3, optimizer=RATE, batch_size=2, seed=seed, max_tokens=max_tokens)

    assert train(0) == train(0)
    assert train(0) != train(1)
    assert train(0, max_tokens=1) == pytest.approx(train(0), abs=1e-4)


def test_a_schedule_scales_the_learning_rate() -> None:
    """With a factor of 0 nothing moves; with the half-way factor the first step of Adam is half as long."""
    still = fresh()
    before = still.digest
    fine_tune(still, ROWS, epochs=1, optimizer=RATE, batch_size=9, seed=0, schedule=lambda progress: 0.0)
    assert still.digest == before
    seen: list[float] = []

    def record(progress: float) -> float:
        seen.append(progress)
        return 1.0

    fine_tune(fresh(), ROWS, epochs=2, optimizer=RATE, batch_size=5, seed=0, schedule=record)
    assert seen == [0.0, 0.25, 0.5, 0.75]


def test_warmup_then_cosine() -> None:
    factor = warmup_cosine(warmup=0.2, final=0.1)
    assert factor(0.0) == 0.0
    assert factor(0.1) == pytest.approx(0.5)
    assert factor(0.2) == pytest.approx(1.0)
    assert factor(0.6) == pytest.approx(0.55)
    assert factor(1.0) == pytest.approx(0.1)
    assert warmup_cosine(warmup=0.0)(0.0) == 1.0
    with pytest.raises(ValueError, match="warmup must lie in"):
        warmup_cosine(warmup=1.0)


def test_what_cannot_be_trained_is_refused() -> None:
    class Constant(MiniModel):
        set_lr = None  # type: ignore[assignment]

    model = Constant.fresh(WORDS, SHAPE, seed=0)
    with pytest.raises(UnsupportedOption, match="mini keeps its learning rate constant"):
        fine_tune(model, ROWS, epochs=1, optimizer=RATE, batch_size=4, seed=0, schedule=warmup_cosine())
    with pytest.raises(ValueError, match="got 0 rows"):
        fine_tune(fresh(), [], epochs=1, optimizer=RATE, batch_size=4, seed=0)
    with pytest.raises(ValueError, match="9 rows but 1 weights"):
        fine_tune(fresh(), ROWS, epochs=1, optimizer=RATE, batch_size=4, seed=0, weights=[1.0])
