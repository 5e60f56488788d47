"""What a run tells whoever watches it: workers send these, a progress display or a log prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Started:
    """A worker began (or resumed) a seed. `iteration` is the last finished one, `iterations` the number planned."""

    seed: int
    iteration: int
    iterations: int
    episodes: int
    """Evaluation episodes still to play for this seed."""


@dataclass(frozen=True, slots=True)
class IterationDone:
    """One round of explore and learn: metrics as stored in the learning curve."""

    seed: int
    iteration: int
    iterations: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class EpisodeDone:
    """One evaluation episode was written."""

    seed: int
    iteration: int
    task: str
    status: str
    success: bool | None
    score: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """A seed is complete."""

    seed: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user should know (a cut last line, a rerun lane)."""

    text: str


Event = Started | IterationDone | EpisodeDone | Finished | Notice
