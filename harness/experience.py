"""Experience: what training sees of trajectories. Rows are cut here, so that groups and rewards cannot drift apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from harness.types import Key, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt and its sampled response, the unit of training.

    Attributes:
        prompt_ids: ids of the prompt.
        ids: sampled ids, at most the token limit.
        logprobs: of the ids when they were sampled.
        reward: of this response, after all penalties.
        group: responses that are compared with each other.
        trajectory: rollout it came from.
        kind: "action", "strategy", ...
        step: index of the first step it caused; 0 for none.
        anchor: bare state it was given in (GiGPO).
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float
    group: Key
    trajectory: Key
    kind: str
    step: int = 0
    anchor: str = ""

    @classmethod
    def of(cls, turn: Turn, *, reward: float, group: Key, trajectory: Key, anchor: str = "") -> Row:
        """The row of a turn.

        Raises:
            ValueError: the engine gave no token ids or no log-probability for each; such turns cannot be trained on.
        """
        completion = turn.completion
        if not completion.token_ids or len(completion.token_ids) != len(completion.logprobs):
            raise ValueError(
                f"a {turn.kind} response of {trajectory} has {len(completion.token_ids)} token ids and "
                f"{len(completion.logprobs)} log-probabilities; training needs one for each sampled id"
            )
        return cls(
            completion.prompt_ids, completion.token_ids, completion.logprobs, reward, group, trajectory, turn.kind,
            turn.steps[0] if turn.steps else 0, anchor,
        )


@dataclass(frozen=True, slots=True)
class Experience:
    """What exploring brought: rows of one or more groups to train on, and all that was played, to learn from.

    Attributes:
        rows: in the order of their trajectories.
        trajectories: keys of the trajectories that have rows, in order.
        outcomes: reward of each of them, float64 [trajectories].
        groups: group of each of them.
        metrics: sums and counts to report; joined by adding.
        dropped: groups left out because too few trajectories were left, see `of`.
        played: every trajectory as it was, also those without rows and of dropped groups; for memories and skills.
    """

    rows: tuple[Row, ...] = ()
    trajectories: tuple[Key, ...] = ()
    outcomes: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    groups: tuple[Key, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0
    played: tuple[Trajectory, ...] = ()

    @classmethod
    def seen(cls, trajectories: Sequence[Trajectory], *, metrics: Mapping[str, float] | None = None) -> Experience:
        """Experience without rows, for methods that learn from what happened and train no weights.

        One trajectory is enough, and no turn needs log-probabilities.
        """
        return cls(metrics=dict(metrics or {}), played=tuple(trajectories))

    @classmethod
    def of(
        cls,
        trajectories: Sequence[Trajectory],
        *,
        group: Key,
        rewards: Callable[[Trajectory, Sequence[Turn]], Sequence[float]],
        outcome: Callable[[Trajectory, Sequence[float]], float] | None = None,
        metrics: Mapping[str, float] | None = None,
        kinds: Sequence[str] = ("action",),
        least: int = 2,
    ) -> Experience:
        """Cut one group of trajectories into rows.

        Args:
            trajectories: of one task, or of one strategy.
            group: key of the group; it carries (iteration, slot), so that two draws of one task never merge.
            rewards: reward of each trainable turn of a trajectory.
            outcome: reward of a trajectory from its row rewards; their mean by default.
            metrics: what to report.
            kinds: of the turns that become rows.
            least: trajectories that a group needs; 2 where they are compared with each other, 1 where they are not.

        A trajectory without trainable turns has no rows and does not enter the statistics of its group. A group of
        fewer than `least` trajectories with rows teaches nothing (infrastructure took the others); it is dropped and
        counted.

        Raises:
            ValueError: trainable turns of another kind than `kinds`, which would vanish unseen; a wrong number of
                rewards; a turn that cannot be trained on (`Row.of`).
        """
        turns_of = [[turn for turn in trajectory.turns if turn.trainable] for trajectory in trajectories]
        if other := {turn.kind for turns in turns_of for turn in turns} - set(kinds):
            raise ValueError(
                f"trainable turns of kind {', '.join(sorted(other))} beside {', '.join(kinds)}: name them in kinds=... "
                "to train on them, or ask them under another role than the policy's"
            )
        cut = [(trajectory, turns) for trajectory, turns in zip(trajectories, turns_of, strict=True) if turns]
        if len(cut) < least:
            return cls(metrics=dict(metrics or {}), dropped=1, played=tuple(trajectories))
        rows: list[Row] = []
        outcomes: list[float] = []
        for trajectory, turns in cut:
            values = list(rewards(trajectory, turns))
            if len(values) != len(turns):
                raise ValueError(f"{len(values)} rewards for {len(turns)} turns of trajectory {trajectory.key}")
            outcomes.append(outcome(trajectory, values) if outcome else _mean(values))
            for turn, reward in zip(turns, values, strict=True):
                anchor = trajectory.steps[turn.steps[0] - 1].anchor if turn.steps else ""
                rows.append(Row.of(turn, reward=reward, group=group, trajectory=trajectory.key, anchor=anchor))
        return cls(
            tuple(rows), tuple(trajectory.key for trajectory, _ in cut), np.asarray(outcomes, dtype=np.float64),
            (group,) * len(cut), dict(metrics or {}), played=tuple(trajectories),
        )  # fmt: skip

    @classmethod
    def join(cls, *parts: Experience) -> Experience:
        """One experience of many; metrics are added."""
        metrics: dict[str, float] = {}
        for part in parts:
            for name, value in part.metrics.items():
                metrics[name] = metrics.get(name, 0.0) + value
        return cls(
            tuple(row for part in parts for row in part.rows),
            tuple(key for part in parts for key in part.trajectories),
            np.concatenate([part.outcomes for part in parts]) if parts else np.zeros(0),
            tuple(group for part in parts for group in part.groups),
            metrics,
            sum(part.dropped for part in parts),
            tuple(trajectory for part in parts for trajectory in part.played),
        )

    def broadcast(self, per_trajectory: Iterable[float]) -> NDArray[np.float64]:
        """One value per trajectory, repeated for each of its rows, float64 [rows].

        Raises:
            ValueError: not one value for each trajectory; two trajectories with the same key, whose rows cannot be
                told apart.
        """
        value = dict(zip(self.trajectories, per_trajectory, strict=True))
        if len(value) < len(self.trajectories):
            (key, count), *_ = Counter(self.trajectories).most_common(1)
            raise ValueError(
                f"{count} trajectories have the key {key}; groups that are joined need keys of their own, with the "
                "iteration and slot of their draw"
            )
        return np.array([value[row.trajectory] for row in self.rows], dtype=np.float64)

    @property
    def row_rewards(self) -> NDArray[np.float64]:
        return np.array([row.reward for row in self.rows], dtype=np.float64)

    @property
    def row_groups(self) -> tuple[Key, ...]:
        return tuple(row.group for row in self.rows)


def _mean(values: Sequence[float]) -> float:
    """Their mean; of equal values exactly that value, so that trajectories of different lengths can agree."""
    return values[0] if all(value == values[0] for value in values) else float(np.mean(values))
