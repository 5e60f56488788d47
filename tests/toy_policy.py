"""A tiny policy for the corridor: cloned in seconds to write well-formed answers and walk without much aim."""

from __future__ import annotations

from pathlib import Path

from harness.cloning import Lesson, lessons
from harness.config import resolve
from harness.demonstration import Demonstration, DemonstrationStep
from harness.model import OptimizerConfig, TrainingRow
from harness.models.mini import MiniConfig, MiniModel, WordTokenizer
from harness.prompts import SCENE_WORDS
from harness.seeding import python_random
from harness.training.sft import fine_tune
from harness.types import Observation, Status, Verdict
from tests.toys import ToyEnv

STRATEGIES = ("walk left", "walk right", "stop at the goal")
SEEN = Observation("", "")


def toy_policy(folder: Path) -> Path:
    """Make the policy in a folder; needs the fixture `toys`."""
    taught = _lessons()
    words = [text for lesson in taught for text in (lesson.prompt, lesson.reply)] + [ToyEnv().malformed_notice]
    tokenizer = WordTokenizer.of([*words, *SCENE_WORDS])
    shape = MiniConfig(hidden=32, layers=1, heads=2, kv_heads=1, ff=32, max_positions=192)
    model = MiniModel.fresh(tokenizer, shape, seed=0)
    rows = [
        TrainingRow(tuple(tokenizer.encode(one.prompt)), (*tokenizer.encode(one.reply), tokenizer.eos_token_id))
        for one in taught
    ]
    fine_tune(model, rows, epochs=12, optimizer=OptimizerConfig(lr=1e-2), batch_size=64, seed=0)
    model.export(folder, card="A policy for tests.", recipe={})
    return folder


def _lessons() -> list[Lesson]:
    random = python_random("toy policy")
    shown = []
    for task in ToyEnv().tasks("train") * 3:
        moves = random.choices(["left", "right", "stop"], [2, 2, 1], k=4)
        steps = tuple(DemonstrationStep(SEEN, move, "", random.random() < 0.8, False) for move in moves)
        shown.append(Demonstration(task, random.choice(STRATEGIES), steps, Verdict(Status.OK, False, 0.0)))
    found = []
    for method in ("grpo", "strata"):
        config = resolve(method=method, env="toy", models={"policy": "toy"}, view="compact")
        found += lessons(config, shown, lambda: ToyEnv(view="compact"))
    return found
