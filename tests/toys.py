"""A corridor to walk, a model that half knows how, and three methods: everything that a run needs, in milliseconds.

The world is deterministic, its best actions are known, and the model's distribution is known exactly, so that tests of
the harness can say what has to come out. `tests/plugin` declares these names as an installed plug-in would; the
fixture `toys` in `tests/conftest.py` puts it on the path, for this process and for those that it starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from harness.arena import Arena
from harness.env import Env, EnvSpec
from harness.episode import Episode
from harness.experience import Experience
from harness.method import Coupling, Method, MethodConfig
from harness.model import Kit, Model, ModelContext, Prompt, Request
from harness.types import Completion, Observation, Split, Status, StepInfo, StepResult, Task, Trajectory, Usage, Verdict

PLUGIN = Path(__file__).parent / "plugin"
CELLS = 6
WALLS = ("red", "green", "blue", "white")
WORDS = ("</s>", "left", "right", "stop", "hmm")
"""Vocabulary of the toy model: end of sequence, the three actions, and a word that is none."""

_PAIRS = [(start, goal) for start in range(CELLS) for goal in range(CELLS) if start != goal]
_SPLITS: dict[Split, slice] = {"train": slice(0, 30, 2), "validation": slice(1, 30, 4), "test": slice(3, 30, 4)}


class ToyEnv(Env):
    """A corridor of six cells: walk to the goal and stop there. The seed paints the walls and changes nothing else."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="toy",
        version=1,
        horizon=7,
        columns=("score", "success"),
        counts={"train": 15, "validation": 8, "test": 7},
        subsets={"near": 4, "far": 3},
        views=("full", "compact"),
        actions="left, right or stop",
        description="A corridor of cells. Walk to the goal and stop there.",
    )

    _cell: int
    _goal: int
    _walls: str
    _stopped: bool

    def tasks(self, split: Split) -> Sequence[Task]:
        return [
            Task(
                env="toy",
                id=f"{split}-{start}-{goal}",
                split=split,
                instruction=f"Walk from cell {start} to cell {goal} and stop.",
                subset="near" if abs(start - goal) < 3 else "far",
                payload=(start, goal),
            )
            for start, goal in _PAIRS[_SPLITS[split]]
        ]

    def reset(self, task: Task, *, seed: int) -> Observation:
        self._cell, self._goal = task.payload
        self._walls = WALLS[seed % len(WALLS)]
        self._stopped = False
        return self._look()

    def step(self, action: str) -> StepResult:
        moved = {"left": self._cell - 1, "right": self._cell + 1, "stop": self._cell}.get(action, -1)
        if not 0 <= moved < CELLS:
            return StepResult(self._look(), 0.0, False, False, StepInfo(admissible=False, message="a wall"))
        self._cell, self._stopped = moved, action == "stop"
        reward = 1.0 if self._stopped and self._cell == self._goal else 0.0
        return StepResult(self._look(), reward, self._stopped, False)

    def verdict(self) -> Verdict:
        missed = abs(self._cell - self._goal)
        score = 1 - missed / (CELLS - 1) if self._stopped else 0.0
        return Verdict(Status.OK, success=self._stopped and not missed, score=score)

    def oracle(self, task: Task) -> Sequence[str]:
        start, goal = task.payload
        return ["right" if goal > start else "left"] * abs(goal - start) + ["stop"]

    def wrong(self, task: Task) -> Sequence[str]:
        return ["stop"]

    def vocabulary(self) -> Sequence[str]:
        """Words of the compact view and its actions."""
        cells = [
            f"Walk from cell {n} to cell {n} and stop. You are at cell {n}. The goal is cell {n}." for n in range(CELLS)
        ]
        return sorted({word for text in (*cells, "left right") for word in text.split()})

    def _look(self) -> Observation:
        bare = f"You are at cell {self._cell}. The goal is cell {self._goal}."
        walls = f" The walls are {self._walls}." if self.view == "full" else ""
        return Observation(bare + walls, anchor=bare, admissible_actions=("left", "right", "stop"), page="corridor")


class ToyModel(Model):
    """Gives the right action with probability `skill`, each other word with an equal share of the rest.

    Every "wins N" in the prompt adds N percent, so that a method can learn. The distribution is exact: its
    log-probabilities after temperature, top-k and top-p are those of what was sampled.
    """

    backend = "toy"

    def __init__(self, skill: float = 0.5) -> None:
        self.skill = skill
        self.name = f"toy:{skill:g}"

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        return [self._answer(request) for request in requests]

    def distribution(self, prompt: str) -> np.ndarray:
        """Probabilities of the words of WORDS for the first token, float64 [5]."""
        seen = re.findall(r"at cell (\d+)\. The goal is cell (\d+)", prompt)
        cell, goal = map(int, seen[-1]) if seen else (0, 0)
        best = WORDS.index("stop" if cell == goal else "right" if goal > cell else "left")
        wins = sum(map(int, re.findall(r"wins (\d+)", prompt)))
        skill = min(0.95, self.skill + wins / 100)
        probabilities = np.full(len(WORDS), (1 - skill) / (len(WORDS) - 2))
        probabilities[best], probabilities[0] = skill, 0.0
        return probabilities

    def _answer(self, request: Request) -> Completion:
        sampling = request.sampling
        probabilities = self.distribution(request.prompt.text)
        if sampling.temperature == 0:
            probabilities = np.eye(len(WORDS))[probabilities.argmax()]
        else:
            probabilities = probabilities ** (1 / sampling.temperature)
        order = np.argsort(-probabilities, kind="stable")[: sampling.top_k or len(WORDS)]
        mass = probabilities[order] / probabilities[order].sum()
        kept = order[np.cumsum(mass) - mass < sampling.top_p]
        mass = probabilities[kept] / probabilities[kept].sum()
        word = int(np.random.default_rng(sampling.seed).choice(kept, p=mass))
        whole = sampling.max_tokens > 1
        words = len(request.prompt.text.split())
        return Completion(
            text=WORDS[word],
            token_ids=(word, 0) if whole else (word,),
            logprobs=(float(np.log(mass[kept == word][0])), 0.0)[: 1 + whole],
            finish_reason="stop" if whole else "length",
            prompt_ids=tuple(range(words)),
            usage=Usage(calls=1, tokens_in=words, tokens_out=1 + whole),
        )


def open_toy(target: str, context: ModelContext) -> ToyModel:
    """The model behind "toy" and "toy:SKILL"."""
    return ToyModel(float(target or 0.5))


class ToyWalker(Method):
    """Asks for an action at every step and learns nothing."""

    name = "toy-walker"

    async def solve(self, episode: Episode) -> Trajectory:
        while not episode.over:
            reply = await episode.ask(self.prompt(episode))
            await episode.step(reply if reply in WORDS[1:4] else None)
        return await episode.close()

    def prompt(self, episode: Episode) -> Prompt:
        return Prompt.user(f"{episode.task.instruction}\n{episode.observation.text}")


class ToyLearner(ToyWalker):
    """Counts its wins in training; the more it has won, the better its prompts make the model."""

    name = "toy-learner"
    coupling: ClassVar[Coupling] = "trained"

    class Config(MethodConfig):
        iterations: int = Field(3, ge=0, description="rounds of explore and learn")
        tasks_per_iteration: int = Field(2, ge=1, description="train tasks of a round")
        rollouts: int = Field(4, ge=1, description="episodes per task")

    def __init__(self, config: MethodConfig, **rest: Any) -> None:
        super().__init__(config, **rest)
        self.wins = 0

    @property
    def options(self) -> Config:
        assert isinstance(self.config, self.Config)
        return self.config

    @property
    def iterations(self) -> int:
        return self.options.iterations

    @property
    def tasks_per_iteration(self) -> int:
        return self.options.tasks_per_iteration

    @property
    def rollouts_per_task(self) -> int:
        return self.options.rollouts

    def prompt(self, episode: Episode) -> Prompt:
        return Prompt.user(f"wins {self.wins}\n{episode.task.instruction}\n{episode.observation.text}")

    async def explore(self, task: Task, arena: Arena) -> Experience:
        trajectories = await arena.gather(self.solve(e) for e in arena.episodes(task, self.options.rollouts))
        return Experience.of(
            trajectories, group=arena.group, rewards=lambda trajectory, turns: [float(trajectory.success)] * len(turns)
        )

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        joined = Experience.join(*experiences)
        self.wins += int(joined.outcomes.sum())
        return {"success": float(joined.outcomes.mean()) if len(joined.outcomes) else 0.0, "wins": float(self.wins)}

    def state_dict(self) -> dict[str, Any]:
        return {"wins": self.wins}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.wins = state["wins"]


class ToyMemory(ToyWalker):
    """Walks better the more test tasks it has seen: a stream."""

    name = "toy-memory"
    coupling: ClassVar[Coupling] = "online"
    stream: ClassVar[bool] = True

    def __init__(self, config: MethodConfig, **rest: Any) -> None:
        super().__init__(config, **rest)
        self.seen: list[str] = []

    def prompt(self, episode: Episode) -> Prompt:
        return Prompt.user(f"wins {6 * len(self.seen)}\n{episode.task.instruction}\n{episode.observation.text}")

    async def observe(self, trajectory: Trajectory) -> None:
        self.seen.append(trajectory.task.id)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = list(state["seen"])


def toy_kit(skill: float = 0.5) -> Kit:
    """A kit whose every role is the toy model."""
    return Kit({"policy": ToyModel(skill)})
