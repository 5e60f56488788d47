"""StraTA, strategic trajectory abstraction: arXiv 2605.06642.

A strategy is sampled once, from the initial state, and stands in every later prompt (section 4.1). Per task, N
strategies are rolled out M times each, and two levels of groups are compared: strategies with strategies, steps with
steps under the same strategy (4.2). Farthest-point selection spreads the strategies (4.3), and the policy itself flags
steps that neither follow the strategy nor help (4.4).

    python -m harness run --method strata --env webshop --seeds 5

Variants of Table 3: `-o diversity=false -o judgment=false` (Vanilla), `-o judgment=false` (Diverse),
`-o diversity=false` (Judgment).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.arena import Arena
from harness.env import EnvSpec
from harness.episode import Episode
from harness.experience import Experience, Row
from harness.method import MethodConfig
from harness.model import Kit, UnsupportedOption
from harness.prompts import parse_action
from harness.training.advantages import group_normalize
from harness.training.config import GroupConfig
from harness.training.policy_gradient import RowAdvantages, flat_share, malformed
from harness.types import Key, Strategy, Task, Trajectory, Turn, View
from methods.strata.diversity import farthest_point_selection, mean_pairwise_cosine
from methods.strata.prompting import StrategyPrompts, parse_judgment, parse_strategy
from methods.strata.rewards import strategy_reward


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sampled strategy and the turn it came from; text None when the reply was malformed."""

    turn: Turn
    text: str | None


@dataclass(frozen=True, slots=True)
class Branch:
    """What became of one strategy: its rows, and the bare outcome of each rollout (Eq. 10)."""

    strategy: Strategy
    experience: Experience
    outcomes: Sequence[float]


@dataclass(frozen=True, slots=True)
class Selection:
    """The strategies that are rolled out, the malformed candidates that are only penalised, and how spread they are."""

    chosen: Sequence[Candidate]
    penalised: Sequence[Candidate] = ()
    metrics: dict[str, float] = field(default_factory=dict)


class StraTA(RowAdvantages):
    """Strategies first, then actions under them; one policy does both and judges itself."""

    name = "strata"
    paper = "arXiv 2605.06642"

    class Config(GroupConfig):
        """Options of StraTA (Table 7; what the paper leaves open says so)."""

        strategies: int = Field(4, ge=1, description="N, strategies rolled out per task")
        rollouts: int = Field(
            8, ge=2, description="M, rollouts per strategy; a lone one has none to be compared with: it trains nothing"
        )
        diversity: bool = Field(True, description="oversample and select by farthest points (section 4.3)")
        oversampling: int = Field(8, ge=1, description="sigma: sigma * N candidates are sampled")
        top_fraction: float = Field(0.5, gt=0, le=1, description="delta of Eq. 10; at least one rollout counts (open)")
        judgment: bool = Field(True, description="self-judgment of finished rollouts (section 4.4)")
        judgment_weight: float = Field(0.1, ge=0, description="kappa of Eq. 17")
        judge_sees_end: bool = Field(True, description="whether the judge sees the last observation (open); full view")
        malformed: Literal["exclude", "penalise"] = Field(
            "exclude",
            description="malformed candidates: kept out of the selection unless too few are left, or besides that "
            "added to the strategy group with reward -1 (open)",
        )

    config: Config

    def __init__(self, config: MethodConfig, *, spec: EnvSpec, view: View, seed: int) -> None:
        super().__init__(config, spec=spec, view=view, seed=seed)
        self.prompts = StrategyPrompts(config, spec, view, judge_sees_end=self.config.judge_sees_end)

    @classmethod
    def needs_embedder(cls, config: MethodConfig) -> bool:
        """For the selection of section 4.3, and for nothing else."""
        assert isinstance(config, cls.Config), "a method is given its own Config"
        return config.diversity

    def setup(self, kit: Kit) -> None:
        if self.view == "compact" and not self.config.judge_sees_end:
            raise UnsupportedOption(
                "judge_sees_end=false has no effect in the compact view, whose judge is shown each page before its "
                "action and never the last one; leave it at true, or use --view full"
            )
        if self.config.diversity and kit.embedder is None:
            raise UnsupportedOption(
                "diversity=true needs a sentence encoder; set embedder, or switch it off: -o diversity=false"
            )
        super().setup(kit)

    @property
    def rollouts_per_task(self) -> int:
        return self.config.strategies * self.config.rollouts

    @property
    def candidates(self) -> int:
        """sigma * N, or N without diversity."""
        return self.config.strategies * (self.config.oversampling if self.config.diversity else 1)

    # -- acting (section 4.1) -----------------------------------------------------------------------------------

    async def solve(self, episode: Episode) -> Trajectory:
        """One strategy, then actions under it; a malformed strategy is acted on as an empty one (open)."""
        reply = await episode.ask(self.prompts.strategy(episode))
        return await self.act(episode, Strategy(parse_strategy(reply) or ""))

    async def act(self, episode: Episode, strategy: Strategy) -> Trajectory:
        """Follow a strategy until the episode is over (Eq. 6, 7)."""
        episode.strategy = strategy
        while not episode.over:
            reply = await episode.ask(self.prompts.action(episode))
            await episode.step(parse_action(reply))
        return await episode.close()

    # -- exploring (sections 4.2 to 4.4) ------------------------------------------------------------------------

    async def explore(self, task: Task, arena: Arena) -> Experience:
        """Two-level rollout of section 4.2: N strategies, M rollouts under each, then the judgments."""
        c = self.config
        episodes = [arena.episodes(task, c.rollouts, branch=(i,)) for i in range(c.strategies)]
        turns = await arena.sample(self.prompts.strategy(episodes[0][0]), n=self.candidates)
        selection = self.select([Candidate(turn, parse_strategy(turn.completion.text)) for turn in turns])
        branches = await arena.gather(
            self.branch(Strategy(candidate.text or "", i), episodes[i], arena)
            for i, candidate in enumerate(selection.chosen)
        )
        return Experience.join(
            self.strategy_group(selection, branches, arena), *(branch.experience for branch in branches)
        )

    def select(self, candidates: Sequence[Candidate]) -> Selection:
        """Algorithm 1 over the valid candidates; malformed ones only fill up what is missing (open)."""
        n = self.config.strategies
        valid = [candidate for candidate in candidates if candidate.text is not None]
        invalid = [candidate for candidate in candidates if candidate.text is None]
        metrics = {"strategies": float(len(candidates)), "malformed_strategies": float(len(invalid))}
        chosen = valid[:n]
        if self.config.diversity and valid:
            assert self.kit is not None, "explore() comes after setup()"
            assert self.kit.embedder is not None, "setup() refuses diversity without an encoder"
            vectors = np.asarray(self.kit.embedder([candidate.text or "" for candidate in valid]))
            order = farthest_point_selection(vectors, min(n, len(valid)))
            chosen = [valid[i] for i in order]
            if len(chosen) > 1:
                metrics |= {
                    "cosine_before": mean_pairwise_cosine(vectors),
                    "cosine_after": mean_pairwise_cosine(vectors[order]),
                    "selections": 1.0,
                }
        filled = n - len(chosen)
        penalised = invalid[filled:] if self.config.malformed == "penalise" else []
        return Selection([*chosen, *invalid[:filled]], penalised, metrics)

    async def branch(self, strategy: Strategy, episodes: Sequence[Episode], arena: Arena) -> Branch:
        """M rollouts under one strategy, and the steps that the policy itself flags (Eq. 16-18)."""
        trajectories = await arena.gather(self.act(episode, strategy) for episode in episodes)
        flagged: dict[int, frozenset[int]] = {}
        metrics: dict[str, float] = {}
        if self.config.judgment and trajectories:
            judgments = await arena.gather(
                self.judge(trajectory, strategy, arena, rollout) for rollout, trajectory in enumerate(trajectories)
            )
            flagged = {rollout: steps for rollout, steps in judgments if steps is not None}
            metrics = {
                "judgments": float(len(trajectories)),
                "judgment_failures": float(len(trajectories) - len(flagged)),
                "flagged_steps": float(sum(len(steps) for steps in flagged.values())),
            }
        steps_of = {t.key: flagged.get(rollout, frozenset()) for rollout, t in enumerate(trajectories)}

        def rewards(trajectory: Trajectory, turns: Sequence[Turn]) -> list[float]:
            return self.judged_rewards(trajectory, turns, steps_of[trajectory.key])

        experience = self.experience(trajectories, group=(*arena.group, strategy.index), rewards=rewards)
        return Branch(
            strategy, Experience.join(experience, Experience(metrics=metrics)), [self.outcome(t) for t in trajectories]
        )

    async def judge(
        self, trajectory: Trajectory, strategy: Strategy, arena: Arena, rollout: int
    ) -> tuple[int, frozenset[int] | None]:
        """Eq. 16: the policy's own list of problematic steps; None when it cannot be read (then no step is flagged)."""
        turn = await arena.ask(
            self.prompts.judgment(trajectory, strategy), role="judge", branch=(strategy.index, rollout)
        )
        return rollout, parse_judgment(turn.completion.text, steps=len(trajectory.steps))

    def judged_rewards(
        self, trajectory: Trajectory, turns: Sequence[Turn], flagged: frozenset[int]
    ) -> list[float]:
        """Eq. 18: outcome, length, format and judgment terms of each action."""
        outcome, kappa = self.outcome(trajectory), self.config.judgment_weight
        return [
            self.row_reward(
                outcome, turn, parsed=not malformed(trajectory, turn),
                judge=-kappa if flagged.intersection(turn.steps) else 0.0,
            )
            for turn in turns
        ]  # fmt: skip

    def strategy_group(self, selection: Selection, branches: Sequence[Branch], arena: Arena) -> Experience:
        """One row per strategy, rewarded with the best delta fraction of its bare outcomes (Eq. 8, 10, 13)."""
        group = (*arena.group, "strategies")
        rows: list[Row] = []
        for branch in branches:
            if not branch.outcomes:  # infrastructure took every rollout: nothing is known of this strategy
                continue
            i = branch.strategy.index
            candidate = selection.chosen[i]
            value = strategy_reward(branch.outcomes, self.config.top_fraction)
            reward = self.row_reward(value, candidate.turn, parsed=candidate.text is not None)
            rows.append(Row.of(candidate.turn, reward=reward, group=group, trajectory=(*group, i)))
        for i, candidate in enumerate(selection.penalised, start=len(selection.chosen)):
            rows.append(Row.of(candidate.turn, reward=-1.0, group=group, trajectory=(*group, i)))
        return Experience(rows=tuple(rows), metrics=selection.metrics)

    # -- learning -----------------------------------------------------------------------------------------------

    def advantages(self, experience: Experience) -> NDArray[np.float64]:
        """Eq. 2 inside each group: all steps of all rollouts under a strategy, or the strategies of a task (Eq. 8)."""
        c = self.config
        return group_normalize(experience.row_rewards, experience.row_groups, ddof=c.ddof, eps=c.eps, scale=c.scale)

    def compared(self, experience: Experience) -> list[tuple[Key, float]]:
        """Actions under one strategy; strategies have a metric of their own."""
        return [(row.group, row.reward) for row in experience.rows if row.kind == "action"]

    def summary(self, experience: Experience) -> dict[str, float]:
        """Adds the strategies' and the judge's rates to the metrics of an iteration."""
        m = experience.metrics
        metrics = super().summary(experience)
        if strategies := [(row.group, row.reward) for row in experience.rows if row.kind == "strategy"]:
            metrics["flat_strategy_groups"] = flat_share(strategies)
        metrics["malformed_strategy_rate"] = m.get("malformed_strategies", 0.0) / max(1.0, m.get("strategies", 0.0))
        if self.config.diversity:
            for name in ("cosine_before", "cosine_after"):
                metrics[name] = m.get(name, 0.0) / max(1.0, m.get("selections", 0.0))
        if self.config.judgment:
            judgments = max(1.0, m.get("judgments", 0.0))
            metrics["judgment_failure_rate"] = m.get("judgment_failures", 0.0) / judgments
            metrics["flagged_rate"] = m.get("flagged_steps", 0.0) / max(1.0, m.get("steps", 0.0))
        return metrics
