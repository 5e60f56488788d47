"""The environment contract.

An environment is single use: one instance plays one episode at a time, `reset` starts it, `verdict` is asked once at
its end. It is deterministic given (task, seed, actions) unless its spec says otherwise. The horizon is counted by the
episode (`harness.episode`), not here, so that methods can play with shorter ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from harness.demonstration import Demonstration
from harness.types import Observation, Split, StepResult, Task, Verdict, View


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What is known of an environment before its package or data are there.

    Attributes:
        name: as registered.
        version: of the environment's behaviour; any change that moves a score raises it.
        horizon: steps of an episode in the paper's protocol.
        columns: metrics of its tables, "success" and/or "score".
        outcome: what the RL methods are rewarded with: "success" (0/1) or "score" (0..1).
        state: "isolated" when episodes cannot see each other, "shared" when they play on one site.
        thread: "any" or "own" (all calls from one thread).
        resource: environments that name the same resource share it (one browser, one JVM).
        offload: True when a step takes long enough (a browser, a JVM, a network) to leave the model's thread.
        deterministic: same task, seed and actions give the same observations.
        counts: tasks per split in the published protocol; None where no document gives a number.
        subsets: reporting columns and their test counts, in the papers' order.
        views: renderings it offers, the default first.
        actions: how an action is written, for prompts and error messages.
        description: rules of the world in words, for prompts.
        extra: optional dependency group that it needs.
        data: what has to be there before it runs, in words; None when it is embedded.
    """

    name: str
    version: int
    horizon: int
    columns: tuple[str, ...] = ("success",)
    outcome: Literal["success", "score"] = "success"
    state: Literal["isolated", "shared"] = "isolated"
    thread: Literal["any", "own"] = "any"
    resource: str | None = None
    offload: bool = False
    deterministic: bool = True
    counts: Mapping[str, int | None] = field(default_factory=dict)
    subsets: Mapping[str, int | None] = field(default_factory=dict)
    views: tuple[View, ...] = ("full",)
    actions: str = ""
    description: str = ""
    extra: str | None = None
    data: str | None = None


class EnvError(RuntimeError):
    """The environment itself failed: a status of the episode, never a score."""


class InfraError(RuntimeError):
    """Something around it failed: a model server, a browser, a network. A status, never a score."""


class DataError(ValueError):
    """Data of an environment are missing or malformed; the message names file, field and way out."""


class Env(ABC):
    """One world. Subclasses set `spec` and take keyword arguments that their `Config` names.

    Construction must be cheap where data can be shared: load them once per process and share them.
    """

    spec: ClassVar[EnvSpec]

    def __init__(self, *, view: View | None = None, data: str | None = None) -> None:
        """Open the environment.

        Args:
            view: rendering; the spec's first by default.
            data: path of official data; embedded data by default.

        Raises:
            ValueError: a view that the spec does not offer.
            DataError: data that are missing or malformed.
        """
        if view is not None and view not in self.spec.views:
            raise ValueError(f"{self.spec.name} has no view {view!r}; it offers {', '.join(self.spec.views)}")
        self.view: View = view or self.spec.views[0]
        self.data = data

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a fixed order; the same list in every process."""

    @abstractmethod
    def reset(self, task: Task, *, seed: int) -> Observation:
        """Start an episode; `seed` decides whatever the task leaves open.

        Raises:
            EnvError, InfraError: the world could not be opened. Only these two are failures of an episode (tried
                again, then a status); any other exception is a fault of the program and stops the run.
        """

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Take one well-formed action. An action that the world does not allow is a no-op with `admissible=False`.

        Raises:
            EnvError, InfraError: the world failed, as in `reset`; a bad action is no failure.
        """

    @abstractmethod
    def verdict(self) -> Verdict:
        """What the episode was worth so far; called once, at its end.

        Raises:
            EnvError, InfraError: it cannot be told, as in `reset`. Never guess a zero instead.
        """

    def close(self) -> None:
        """Release what the instance holds; calling it twice is fine."""
        return None

    def oracle(self, task: Task) -> Sequence[str] | None:
        """Actions that solve the task from its reset, where the environment knows them."""
        return None

    def wrong(self, task: Task) -> Sequence[str] | None:
        """Actions that end the episode without solving the task; the grader is tested on them."""
        return None

    def demonstrations(self, n: int, *, seed: int, noise: float) -> Sequence[Demonstration] | None:
        """Episodes of a scripted expert on training tasks, with slips at the rate `noise`; None without an expert."""
        return None

    def vocabulary(self) -> Sequence[str]:
        """Every word that the compact view and its actions can hold, where that is a closed set; empty otherwise."""
        return ()

    @property
    def data_digest(self) -> str:
        """Digest of data and task lists, part of a run's identity."""
        return "embedded"

    @property
    def malformed_notice(self) -> str:
        """Sentence put before the repeated observation after a reply that could not be parsed."""
        return f"Your last reply held no valid action; the world did not change. Answer with {self.spec.actions}."
