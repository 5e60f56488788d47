"""Demonstrations: episodes of a scripted expert, from which the mini policies are cloned."""

from __future__ import annotations

from dataclasses import dataclass

from harness.types import Observation, Task, Verdict


@dataclass(frozen=True, slots=True)
class DemonstrationStep:
    """One step of a demonstration.

    Attributes:
        observation: what the expert saw before.
        action: as the environment's view spells it.
        thought: why, in a few words.
        follows_strategy: False for a slip.
        forward: whether it brought the goal nearer.
    """

    observation: Observation
    action: str
    thought: str
    follows_strategy: bool
    forward: bool


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode of an expert that followed a strategy, good or bad, with slips."""

    task: Task
    strategy: str
    steps: tuple[DemonstrationStep, ...]
    verdict: Verdict
