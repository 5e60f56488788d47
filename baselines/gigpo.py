"""GiGPO, group-in-group policy optimisation: arXiv 2505.10978; constants and order of operations as in verl-agent.

Two levels of comparison on the same rollouts: an episode with the other episodes of its task (Eq. 3), and an action
with the other actions that were taken in the same state of that task, wherever in the rollouts that was (Eq. 6, 7).

    python -m harness run --method gigpo --env webshop --seeds 5
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from baselines.grpo import GRPO
from harness.experience import Experience
from harness.training.advantages import discounted_returns, group_index, group_normalize

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class GiGPO(GRPO):
    """GRPO's rollouts and episode advantage, and a second advantage among rows that were given the same state.

    What a row earns is the same on both levels. Its episode reward is the row's reward (StraTA Eq. 13): the outcome of
    its trajectory with its own penalties. Its step return is the outcome discounted to its step, with the same
    penalties: they are its own, so they are not discounted and no earlier row inherits them (verl-agent subtracts its
    penalty after the discounting too). Where the sum was clipped, the penalty is what the clipping left of it.

    Both published reward scalings are options: `scale` std (mean_std_norm) or none (mean_norm), and the rewards of
    verl-agent, 10 for a success and 0.1 off for an invalid action, are `reward_scale=10 auxiliary=invalid decay=0`
    (`--preset verl-agent`).
    """

    name = "gigpo"
    paper = "StraTA, Table 1 (GiGPO); arXiv 2505.10978"

    class Config(GRPO.Config):
        """Options of GiGPO; `scale`, `ddof` and `eps` hold for both levels, `statistics` for that of episodes."""

        statistics: Literal["trajectory", "row"] = Field(
            "row",
            description="what mean and std of the episode level run over: the group's rows (verl-agent, as it was "
            "published), or its trajectories (Eq. 3)",
        )
        omega: float = Field(1.0, ge=0, description="weight of the step advantage (Eq. 8); 0 leaves GRPO")
        gamma: float = Field(0.95, ge=0, le=1, description="discount per step of the step returns (Eq. 5)")
        similarity: float | None = Field(
            None,
            gt=0,
            le=1,
            description="states whose texts are this alike are one (difflib's ratio; verl-agent: 0.95, 0.9 for "
            "search); only equal ones by default",
        )

    config: Config

    def advantages(self, experience: Experience) -> FloatArray:
        """Eq. 8: A = A^E + omega A^S, one number per row."""
        episode = super().advantages(experience)
        if not self.config.omega:
            return episode
        c = self.config
        groups = step_groups([row.anchor for row in experience.rows], experience.row_groups, c.similarity)
        step = group_normalize(self.step_returns(experience), groups, ddof=c.ddof, eps=c.eps, scale=c.scale)
        return episode + c.omega * step

    def step_returns(self, experience: Experience) -> FloatArray:
        """Eq. 5: the outcome, which falls due at the last row of its trajectory, discounted; then the penalties.

        Raises:
            ValueError: the trajectory of a row is not among those that the experience saw.
        """
        scale = self.config.reward_scale
        bare = {trajectory.key: scale * self.outcome(trajectory) for trajectory in experience.played}
        keys = [row.trajectory for row in experience.rows]
        if lost := set(keys) - set(bare):
            raise ValueError(f"no outcome is known of trajectory {min(lost)}; pass the experience as it was explored")
        outcomes = np.array([bare[key] for key in keys], dtype=np.float64)
        last = {key: place for place, key in enumerate(keys)}  # rows of a trajectory stand in time order
        rewards = np.where([last[key] == place for place, key in enumerate(keys)], outcomes, 0.0)
        return discounted_returns(rewards, keys, self.config.gamma) + (experience.row_rewards - outcomes)

    def summary(self, experience: Experience) -> dict[str, float]:
        """Adds how much there was to compare on the level of steps."""
        metrics = super().summary(experience)
        groups = step_groups([row.anchor for row in experience.rows], experience.row_groups, self.config.similarity)
        sizes = np.bincount(groups)
        rows = max(1, len(experience.rows))
        metrics["step_group_share"] = float(sizes[sizes > 1].sum()) / rows
        metrics["step_group_size"] = len(experience.rows) / max(1, len(sizes))
        return metrics


def gigpo_advantages(
    episode_rewards: npt.ArrayLike,
    step_rewards: npt.ArrayLike,
    observations: Sequence[Hashable],
    episodes: Sequence[Hashable],
    groups: Sequence[Hashable],
    *,
    gamma: float,
    omega: float,
    scale: str,
    ddof: int = 1,
    eps: float = 1e-6,
    similarity: float | None = None,
) -> FloatArray:
    """Advantage of each row: A = A^E + omega A^S (GiGPO Eq. 3-8).

    A^E compares rows with all rows of their group, as verl-agent does, so that long episodes weigh more in mean and
    standard deviation. A^S compares rows of a group that were given the same observation. A row that has nothing to be
    compared with gets exactly 0 on that level.

    Args:
        episode_rewards: shape [N], the reward of its episode, repeated on each row (with penalties of the row's own,
            if there are any).
        step_rewards: shape [N], raw reward of each row's step; the rows of an episode stand in time order. They are
            discounted here.
        observations: N anchor states, without history, step numbers or notices; texts where `similarity` is given.
        episodes: N hashable keys, the episode of each row.
        groups: N hashable keys, the task draw of each row; groups are never compared with each other.
        gamma: discount per step, in [0, 1].
        omega: weight of A^S.
        scale: "std" (mean_std_norm of the published code) or "none" (mean_norm), on both levels.
        ddof: 1 or 0, see `group_normalize`.
        eps: added to the standard deviations.
        similarity: see `step_groups`.

    Returns:
        Shape [N], in the order of the rows.

    Raises:
        ValueError: lengths differ, a reward is not finite, or an option lies outside its range.
        TypeError: `similarity` is given and an observation is no text.
    """
    episode = group_normalize(episode_rewards, groups, ddof=ddof, eps=eps, scale=scale)
    returns = discounted_returns(step_rewards, episodes, gamma)
    step = group_normalize(returns, step_groups(observations, groups, similarity), ddof=ddof, eps=eps, scale=scale)
    if len(step) != len(episode):
        raise ValueError(f"{len(episode)} episode rewards but {len(step)} step rewards; pass both for each row")
    return episode + omega * step


def step_groups(
    observations: Sequence[Hashable], groups: Sequence[Hashable], similarity: float | None = None
) -> IndexArray:
    """Number the groups of rows that were given the same state of the same task (GiGPO Eq. 6).

    Args:
        observations: N anchor states.
        groups: N hashable keys; rows of different groups never meet.
        similarity: None compares exactly. Else states are clustered greedily, in the order of the rows: a row joins
            the first cluster of its group whose first member is at least this alike (difflib's ratio, in (0, 1]), or
            begins a cluster. The result depends on the order, and "mug 1" may meet "mug 2".

    Returns:
        Shape [N], numbers counted from 0 in order of appearance.

    Raises:
        ValueError: lengths differ, or similarity lies outside (0, 1].
        TypeError: `similarity` is given and an observation is no text.
    """
    if len(observations) != len(groups):
        raise ValueError(f"{len(observations)} observations but {len(groups)} group keys; pass both for each row")
    if similarity is None:
        return group_index(zip(group_index(groups).tolist(), observations, strict=True))
    if not 0 < similarity <= 1:
        raise ValueError(f"similarity is {similarity!r}; it must lie in (0, 1], or be None to compare exactly")
    return group_index(_clusters(observations, group_index(groups).tolist(), similarity))


def _clusters(
    observations: Iterable[Hashable], groups: Iterable[int], similarity: float
) -> Iterable[tuple[int, str]]:
    """Each row's cluster: its group and the text of the cluster's first member."""
    firsts: dict[int, list[str]] = {}
    for text, group in zip(observations, groups, strict=True):
        if not isinstance(text, str):
            raise TypeError(f"similarity compares texts, got an observation of {type(text).__name__}: {text!r}")
        known = firsts.setdefault(group, [])
        first = next((other for other in known if _alike(text, other, similarity)), None)
        if first is None:
            known.append(first := text)
        yield group, first


@lru_cache(maxsize=1 << 16)  # states come back, in other rollouts and in later iterations
def _alike(text: str, first: str, similarity: float) -> bool:
    """Whether difflib's ratio reaches `similarity`; its two quick bounds are asked first."""
    matcher = SequenceMatcher(None, text, first)
    return (
        matcher.real_quick_ratio() >= similarity
        and matcher.quick_ratio() >= similarity
        and matcher.ratio() >= similarity
    )
