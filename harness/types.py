"""The vocabulary of the project; read this file first.

A *task* is what an agent is asked to do. An *episode* is one attempt at it: the environment shows *observations*, the
method asks a model (a *turn*) and acts (*steps*), until the environment or the horizon ends it. What happened is a
*trajectory*; what it was worth is a *verdict*. Training cuts trajectories into *rows* (one prompt and its sampled
response); see `harness.experience`.

    Task -> Episode -> Turn, Step, Turn, Step, ... -> Trajectory (StopReason, Verdict, Usage)

Everything here is immutable and knows nothing of models, files or methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
Mode = Literal["train", "eval"]
View = Literal["full", "compact"]
Key = tuple[str | int, ...]
"""Identity of a request or a group: labels in a fixed order, comparable within a lane."""


class StopReason(StrEnum):
    """Why an episode ended."""

    SUCCESS = "success"
    """The environment ended the episode and the goal was reached."""
    FAILURE = "failure"
    """The environment ended the episode and the goal was not reached (the wrong product was bought)."""
    HORIZON = "horizon"
    """The step budget ran out: a truncation, not a decision of the environment."""
    ABANDONED = "abandoned"
    """The method closed the episode before it was over."""
    ENDED = "ended"
    """The environment ended the episode; whether the goal was reached is withheld (`Trajectory.unlabelled`)."""
    LIMIT = "limit"
    """Another limit fired (wall time, tokens, cost); the verdict stands."""
    ENV_ERROR = "env_error"
    """The environment raised, and again after its retry: there is no verdict."""
    INFRA_ERROR = "infra_error"
    """A model server, a browser or a network failed: there is no verdict."""


class Status(StrEnum):
    """Whether an episode has a verdict. Apart from the score, so that an error can never be read as a zero."""

    OK = "ok"
    """A verdict was reached, good or bad."""
    LIMIT = "limit"
    """A limit other than the horizon ended the episode; what was reached until then is the verdict."""
    ENV_ERROR = "env_error"
    """No verdict: the environment failed."""
    INFRA_ERROR = "infra_error"
    """No verdict: infrastructure failed."""
    WITHHELD = "withheld"
    """There is a verdict, and whoever holds this trajectory may not see it; never the status of a row."""

    @property
    def has_verdict(self) -> bool:
        return self in (Status.OK, Status.LIMIT)


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do in one environment.

    Attributes:
        env: name of the environment, as registered.
        id: unique within the environment and stable across versions of the task list.
        split: train, validation or test.
        instruction: the goal in words, as the agent reads it.
        subset: reporting column ("Pick", "Measure"); None where the benchmark has none.
        group: cluster key for the statistics: tasks that share it are not independent (a template, a product).
        site: web site the task plays on; None for text environments.
        payload: what only the environment understands; never shown to a method.
    """

    env: str
    id: str
    split: Split
    instruction: str
    subset: str | None = None
    group: str | None = None
    site: str | None = None
    payload: Any = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees.

    Attributes:
        text: the observation as it goes into a prompt.
        anchor: the bare state, free of history, step numbers and notices: equal anchors mean equal states (GiGPO).
        admissible_actions: every action that would be accepted now, where the environment can list them.
        page: kind of page or room ("results", "item"); a short name for compact histories.
        image: encoded screenshot, PNG.
        url: address, for web environments.
    """

    text: str
    anchor: str
    admissible_actions: tuple[str, ...] | None = None
    page: str | None = None
    image: bytes | None = field(default=None, repr=False)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class StepInfo:
    """Facts about one step that are neither observation nor reward.

    Attributes:
        admissible: False when the action was well formed but the world does not allow it (a no-op).
        message: what the environment has to say about it.
    """

    admissible: bool = True
    message: str | None = None


class StepResult(NamedTuple):
    """The five of Gymnasium, with Gymnasium's meaning; `terminated` and `truncated` are never both needed to stop."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: StepInfo = StepInfo()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the horizon, whoever caused it.

    Attributes:
        index: 1, 2, ... within the episode.
        action: what was sent to the environment; None for a malformed reply, which costs a step and touches nothing.
        observation: what the agent saw afterwards.
        page: page on which the action was taken.
        anchor: bare state in which the action was taken.
        reward: reward of the environment for this step.
        admissible: False when the world refused the action.
    """

    index: int
    action: str | None
    observation: Observation
    page: str | None
    anchor: str
    reward: float
    admissible: bool = True

    @property
    def malformed(self) -> bool:
        return self.action is None


@dataclass(frozen=True, slots=True)
class Usage:
    """Model calls and tokens; `cost` is None when the price is not known, never a guess.

    Tokens are counted at our side of the call: `tokens_in` as the prompt's length, `tokens_cached` the part of it
    that the engine did not compute again.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tokens_cached + other.tokens_cached,
            cost,
        )


FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A sampled response.

    Attributes:
        text: decoded response without the end-of-sequence token.
        token_ids: sampled ids, end of sequence included when it was sampled; exactly these ids are trained on.
        logprobs: log-probability of each id under the distribution it was sampled from (after temperature, top-p and
            top-k), natural logarithm; empty where the engine does not tell.
        finish_reason: "stop" (end of sequence) or "length" (cut at the token limit).
        prompt_ids: ids of the prompt as the engine saw it.
        usage: tokens of this call.
        version: of the weights that sampled it; counts updates.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    prompt_ids: tuple[int, ...] = ()
    usage: Usage = Usage()
    version: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call and the environment steps that it caused (0 for a judgment, many for a skill).

    Attributes:
        role: model that was asked: "policy", "judge", "inducer", ...
        kind: what it was asked for: "action", "strategy", "judgment", ...
        completion: the response.
        trainable: whether its tokens may become a row.
        steps: indices of the steps it caused.
        token_limit: most tokens the response was allowed, L of StraTA Eq. 11.
        prompt: the prompt as text, for transcripts.
    """

    role: str
    kind: str
    completion: Completion
    trainable: bool
    token_limit: int
    steps: tuple[int, ...] = ()
    prompt: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the environment says of a finished episode.

    Attributes:
        status: whether there is a verdict at all.
        success: goal reached; None without a verdict.
        score: in the unit of the environment, from 0 to 1; None without a verdict.
        reason: in words, for failures of the environment.
    """

    status: Status
    success: bool | None
    score: float | None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.status.has_verdict == (self.success is None or self.score is None):
            raise ValueError(f"a verdict needs success and score exactly when its status is ok or limit, got {self}")


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy that an episode follows (StraTA Eq. 5); an empty text is acted on as no strategy."""

    text: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What happened in one episode.

    Attributes:
        task: what was to be done.
        seed: of the environment.
        horizon: the step budget it ran under.
        steps: all steps, malformed replies included.
        turns: all model calls in order.
        stop: why it ended.
        verdict: what it was worth.
        usage: of all turns.
        strategy: what it followed, if anything.
        first: the observation before the first step.
        key: identity of the rollout within its run: (phase, iteration, slot, task, strategy, rollout).
    """

    task: Task
    key: Key
    seed: int
    horizon: int
    first: Observation
    steps: Sequence[Step]
    turns: Sequence[Turn]
    stop: StopReason
    verdict: Verdict
    usage: Usage
    strategy: Strategy | None = None

    @property
    def success(self) -> bool:
        """Success of a trajectory that has a verdict; asking another one is a programming error (ValueError)."""
        if self.verdict.success is None:
            raise self._no_verdict("read as a failure")
        return self.verdict.success

    @property
    def score(self) -> float:
        """Score of a trajectory that has a verdict; asking another one is a programming error (ValueError)."""
        if self.verdict.score is None:
            raise self._no_verdict("scored")
        return self.verdict.score

    @property
    def reward(self) -> float:
        """Sum of the environment's step rewards; 0 where they are withheld."""
        return sum(step.reward for step in self.steps)

    def unlabelled(self) -> Trajectory:
        """The same episode without what the environment says of it, for methods that may not read labels.

        The verdict is withheld, step rewards are 0, and success and failure become `StopReason.ENDED`. What was seen
        after the environment ended the episode is left out too: some environments print the score there. What the
        method has lived through stays: its actions, what it saw before, and how many steps it took.
        """
        steps = [replace(step, reward=0.0) for step in self.steps]
        ended = self.stop in (StopReason.SUCCESS, StopReason.FAILURE)
        if steps and (ended or self.stop is StopReason.LIMIT):
            steps[-1] = replace(steps[-1], observation=Observation("", anchor=""))
        return replace(
            self,
            steps=tuple(steps),
            stop=StopReason.ENDED if ended else self.stop,
            verdict=Verdict(Status.WITHHELD, None, None),
        )

    def _no_verdict(self, wrong: str) -> ValueError:
        return ValueError(f"task {self.task.id!r} has no verdict ({self.verdict.status}); it must not be {wrong}")


