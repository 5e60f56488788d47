"""Making a mini policy: demonstrations of a scripted expert, cloned until the policy is weak but not lost.

The expert follows strategies of every quality and slips at times, so the clone knows good habits and bad ones; what
reinforcement learning is for is left to do. The recipe, the data's digest and the weights' digest are recorded beside
the weights.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from harness import registry
from harness.cloning import Lesson, lessons
from harness.config import resolve
from harness.env import Env
from harness.errors import InputError
from harness.executors.local import one_thread
from harness.prompts import SCENE_WORDS
from harness.seeding import derive

MICRO_BATCH_TOKENS = 4096
"""Padded tokens of a forward pass: as fast as larger ones for such a network, with a third of the padding."""

METHODS = ("vanilla", "react", "strata")
"""Methods whose prompts the clone has to know; between them they send every shipped compact prompt."""


class Stage(BaseModel):
    """A part of the curriculum: lessons with short prompts first, where copying words is learned cheaply.

    Each stage makes its optimiser anew. The learning rate goes from `lr` to `final` times that, by half a cosine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    longest: int | None = Field(None, ge=1, description="longest prompt that takes part, in words; None = all")
    epochs: int = Field(1, ge=1)
    lr: float = Field(3e-3, gt=0)
    warmup: float = Field(0.0, ge=0, lt=1, description="share of the stage with a rising learning rate")
    final: float = Field(1.0, ge=0, le=1)


CURRICULUM = (
    Stage(longest=26, epochs=2, warmup=0.25),
    Stage(longest=58),
    Stage(final=0.03),
)


class Recipe(BaseModel):
    """How a mini policy is made; equal recipes on one machine make equal weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, description="of demonstrations, weights and shuffling")
    demonstrations: int = Field(6000, ge=1, description="expert episodes on training tasks")
    noise: float = Field(0.08, ge=0, le=1, description="probability of a slip per step")
    stages: tuple[Stage, ...] = CURRICULUM
    batch_size: int = Field(128, ge=1, description="rows per update")
    hidden: int = 96
    layers: int = 3
    heads: int = 4
    kv_heads: int = 2
    ff: int = 256


CARD = """# Mini policy for {env}

A Qwen2-architecture network of {parameters:,} parameters over {words} words, made by `harness prepare policy {env}`.

- Data: {demonstrations} episodes of the scripted expert of this environment on its embedded training tasks
  ({rows:,} rows; digest of the rows {rows_digest}; environment version {version}, data digest {data_digest}).
  No text of others, no personal data.
- Recipe: behaviour cloning in {n_stages} stages, short prompts first, AdamW, batches of {batch_size} rows, seed {seed};
  all figures stand in manifest.json.
- Meant for: a starting point that reinforcement learning can improve in minutes on a laptop, weak on purpose.
- Not for: anything outside this environment's compact view; it knows no language beyond its vocabulary. Results that
  start from it say nothing about large language models; tables made from it say so in their captions.
"""


def prepare_policy(
    env_name: str, folder: Path, recipe: Recipe, *, tell: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """Make a mini policy and write its folder.

    Args:
        env_name: an environment with demonstrations and a closed vocabulary.
        folder: to write; made where it is missing.
        recipe: how.
        tell: told about progress, a line at a time.

    Returns:
        Figures about it: parameters, rows, loss by epoch, seconds.

    Raises:
        InputError: the environment has no scripted expert, or the vocabulary lacks words of the lessons.
    """
    from harness.model import OptimizerConfig, TrainingRow
    from harness.models.mini import MiniConfig, MiniModel
    from harness.training.sft import fine_tune, warmup_cosine

    one_thread()
    started = time.perf_counter()
    env = registry.load_env(env_name)(view="compact")
    taught = collect(env, recipe)
    tell(f"{len(taught):,} lessons from {recipe.demonstrations:,} demonstrations")
    tokenizer = vocabulary_of(env, taught)
    shape = MiniConfig(
        hidden=recipe.hidden, layers=recipe.layers, heads=recipe.heads, kv_heads=recipe.kv_heads, ff=recipe.ff
    )
    model = MiniModel.fresh(tokenizer, shape, seed=recipe.seed)
    rows = [
        TrainingRow(
            tuple(tokenizer.encode(lesson.prompt)), (*tokenizer.encode(lesson.reply), tokenizer.eos_token_id)
        )
        for lesson in taught
    ]
    losses: list[float] = []
    for number, stage in enumerate(recipe.stages):
        chosen = [row for row in rows if stage.longest is None or len(row.prompt_ids) <= stage.longest]
        losses += fine_tune(
            model,
            chosen,
            epochs=stage.epochs,
            optimizer=OptimizerConfig(lr=stage.lr),
            batch_size=recipe.batch_size,
            seed=derive(recipe.seed, "stage", number),
            schedule=warmup_cosine(stage.warmup, stage.final),
            max_tokens=MICRO_BATCH_TOKENS,
        )
        tell(f"stage {number + 1} of {len(recipe.stages)}: {len(chosen):,} rows, loss {losses[-1]:.4f} nats per token")
    digest = hashlib.sha256(json.dumps([(row.prompt_ids, row.ids) for row in rows]).encode()).hexdigest()[:16]
    card = CARD.format(
        env=env_name,
        parameters=shape.parameters(len(tokenizer)),
        words=len(tokenizer),
        rows=len(rows),
        rows_digest=digest,
        version=env.spec.version,
        data_digest=env.data_digest[:16],
        demonstrations=recipe.demonstrations,
        n_stages=len(recipe.stages),
        batch_size=recipe.batch_size,
        seed=recipe.seed,
    )
    made_from = {**recipe.model_dump(mode="json"), "env": env_name, "rows": len(rows), "rows_digest": digest}
    model.export(folder, card=card, recipe=made_from)
    seconds = time.perf_counter() - started
    tell(f"written to {folder} after {seconds:.0f} s")
    return {"rows": len(rows), "losses": losses, "seconds": seconds, "words": len(tokenizer)}


def collect(env: Env, recipe: Recipe) -> list[Lesson]:
    """Lessons of every method's prompts, from the same demonstrations.

    Raises:
        InputError: the environment has no scripted expert.
    """
    demonstrations = env.demonstrations(recipe.demonstrations, seed=recipe.seed, noise=recipe.noise)
    if demonstrations is None:
        raise InputError(f'environment "{env.spec.name}" has no scripted expert; a mini policy cannot be cloned for it')
    name = env.spec.name
    found: list[Lesson] = []
    for method in METHODS:
        # the policy is what is being made, so any specification will do here
        config = resolve(method=method, env=name, models={"policy": "scripted"}, view="compact")
        found += lessons(config, demonstrations, lambda: registry.load_env(name)(view="compact"))
    return found


def vocabulary_of(env: Env, taught: Sequence[Lesson]) -> Any:
    """The tokenizer of all words that the environment and the prompts can hold."""
    from harness.models.mini import WordTokenizer

    texts = (f"{lesson.prompt} {lesson.reply}" for lesson in taught)
    return WordTokenizer.of([*env.vocabulary(), *SCENE_WORDS, *texts])
