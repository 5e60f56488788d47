"""The method contract: one interface for reinforcement learning, skills, memories and plain prompting.

A method solves test tasks (`solve`) and, if it learns, explores train tasks and learns from them. Its code is
straight-line `async`: batches, devices, retries, seeds and files live one floor down.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness.arena import Arena
from harness.env import EnvSpec
from harness.episode import Episode
from harness.experience import Experience
from harness.model import Kit, Sampling
from harness.prompts import prompts_of
from harness.types import Mode, Task, Trajectory, View

Coupling = Literal["independent", "online", "trained"]


class MethodConfig(BaseModel):
    """Options that every method has; a method's own `Config` extends it. Unknown options are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: float = Field(0.7, ge=0, description="evaluation temperature (StraTA Table 7)")
    top_p: float = Field(0.8, gt=0, le=1, description="evaluation nucleus (StraTA Table 7)")
    top_k: int = Field(20, ge=0, description="evaluation top-k, 0 = off (StraTA Table 7)")
    max_tokens: int = Field(1024, ge=1, description="L, token limit of a response (StraTA Table 7)")
    max_prompt: int = Field(7168, ge=1, description="most tokens of a prompt; the oldest steps go first (Table 7)")
    history: int = Field(2, ge=-1, description="steps shown in a prompt; -1 = all")
    reasoning: bool = Field(False, description="ask for reasoning before the action; full view only (open)")
    prompts: str | None = Field(None, description="folder of template files that replace the shipped ones")


class Method(ABC):
    """A way to solve tasks.

    Attributes:
        name: as registered.
        coupling: what one seed is. "independent": every episode is a fresh sample; "online": a seed is one pass whose
            memory couples its episodes; "trained": a seed is one training run. Picks the statistical design.
        paper: where it comes from, for tables.
        stream: test tasks are seen one by one in an order seeded by the run, with `observe` after each. What it learns
            there lasts until the end of the evaluation: its state is then what it was before.
        reads_labels: a stream method that reads verdicts of test tasks; others observe `Trajectory.unlabelled()`.
    """

    name: ClassVar[str]
    coupling: ClassVar[Coupling] = "independent"
    paper: ClassVar[str] = ""
    stream: ClassVar[bool] = False
    reads_labels: ClassVar[bool] = False

    class Config(MethodConfig):
        """Options of the method."""

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        """Make a method for one run.

        Args:
            config: its options, an instance of its own `Config`.
            spec: of the environment it will play.
            view: rendering it will see; prompts differ by view.
            seed: of the run.
        """
        self.config = config
        self.spec, self.view, self.seed = spec, view, seed
        self.kit: Kit | None = None

    def setup(self, kit: Kit) -> None:
        """Take the models; called once before anything else.

        Raises:
            harness.model.UnsupportedOption: the models cannot do what the method's options need.
        """
        self.kit = kit
        for prompts in prompts_of(self):
            prompts.setup(kit)

    @classmethod
    def needs_embedder(cls, config: MethodConfig) -> bool:
        """Whether the kit must hold a sentence encoder, under these options of the method."""
        return False

    @classmethod
    def trains_policy(cls, config: MethodConfig) -> bool:
        """Whether the policy must be a `TrainableModel`, under these options of the method."""
        return False

    @property
    def iterations(self) -> int:
        """Rounds of explore and learn; 0 for a method that does not learn.

        A method that learns has an option of this name: the plan reads it without making the method.
        """
        return 0

    @property
    def tasks_per_iteration(self) -> int:
        return 0

    @property
    def rollouts_per_task(self) -> int:
        """Episodes that `explore` plays on one task; lanes are cut by it, budgets are counted with it."""
        return 1

    def sampling(self, mode: Mode) -> Sampling:
        """How responses are sampled: at evaluation as the config says, at temperature 1 in training."""
        c = self.config
        if mode == "eval":
            return Sampling(c.temperature, c.top_p, c.top_k, c.max_tokens)
        return Sampling(1.0, 1.0, 0, c.max_tokens)

    @abstractmethod
    async def solve(self, episode: Episode) -> Trajectory:
        """One evaluation episode; leaves `state_dict()` unchanged."""

    async def explore(self, task: Task, arena: Arena) -> Experience:
        """Training rollouts for one task."""
        raise TypeError(f"method {self.name!r} does not explore; it has {self.iterations} iterations")

    async def learn(self, experiences: Sequence[Experience], arena: Arena, iteration: int) -> Mapping[str, float]:
        """Update weights, memory or library; returns metrics of the iteration."""
        raise TypeError(f"method {self.name!r} does not learn; it has {self.iterations} iterations")

    async def propose(self, arena: Arena, iteration: int) -> Sequence[Task] | None:
        """Practice tasks that the method invents (ungraded); None to be given train tasks.

        It runs inside a lane, so that it may look at the world and ask a model through the arena.
        """
        return None

    async def observe(self, trajectory: Trajectory) -> None:
        """For `stream` methods: what just happened on a test task; an episode without a verdict is not observed.

        Without `reads_labels` the trajectory is unlabelled: its verdict is withheld (`Status.WITHHELD`) and asking for
        success or score is an error.
        """
        raise TypeError(f"method {self.name!r} is not a stream method")

    def state_dict(self) -> dict[str, Any]:
        """All that learning changed, as plain JSON values; weights by their digest."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        if state:
            raise ValueError(f"method {self.name!r} keeps no state, got {sorted(state)}")

    def save(self, folder: Path) -> None:
        """Write a checkpoint into an existing folder; the runner makes it atomic."""
        (folder / "method.json").write_text(json.dumps(self.state_dict(), sort_keys=True))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote."""
        self.load_state_dict(json.loads((folder / "method.json").read_text()))
