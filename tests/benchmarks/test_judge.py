"""The judge's judge: who is right about a step is read off the scripted shopper."""

from __future__ import annotations

import pytest

from benchmarks.judge import Counts, count, main
from envs.webshop import expert
from envs.webshop.demonstrations import demonstrations
from harness.types import Status, Step, StopReason, Strategy, Trajectory, Usage, Verdict


def judged(plan: expert.Plan, seed: int, flag):
    """A shopper's episode with its slips, and the steps that `flag` picks among them."""
    shown = demonstrations(1, seed, 0.5, plans=[plan])[0]
    steps = tuple(
        Step(n, s.action, s.observation, s.observation.page, s.observation.anchor, 0.0)
        for n, s in enumerate(shown.steps, 1)
    )
    trajectory = Trajectory(
        task=shown.task, key=("t",), seed=0, steps=steps, turns=(), stop=StopReason.HORIZON, horizon=15,
        first=steps[0].observation, verdict=Verdict(Status.OK, False, 0.0), usage=Usage(),
        strategy=Strategy(shown.strategy),
    )  # fmt: skip
    wrong = [n for n, s in enumerate(shown.steps, 1) if not s.follows_strategy and not s.forward]
    return trajectory, flag(frozenset(wrong)), len(wrong), len(steps)


def test_the_shopper_judges_itself_without_fault():
    episodes = [judged(plan, seed, lambda wrong: wrong) for seed, plan in enumerate((expert.BEST, expert.WORST) * 4)]
    counts = count([episode[:2] for episode in episodes])
    wrong, steps = (sum(episode[k] for episode in episodes) for k in (2, 3))
    assert 0 < wrong < steps
    assert counts == Counts(wrong_flagged=wrong, right_passed=steps - wrong)
    assert "precision  1.000" in str(counts)
    assert "recall     1.000" in str(counts)


def test_a_judge_that_flags_nothing_or_writes_nonsense():
    quiet = judged(expert.BEST, 3, lambda wrong: frozenset())
    assert count([quiet[:2]]) == Counts(wrong_passed=quiet[2], right_passed=quiet[3] - quiet[2])
    assert "precision  none" in str(count([quiet[:2]]))
    unreadable = judged(expert.BEST, 3, lambda wrong: None)
    assert count([unreadable[:2]]) == Counts(unreadable=1)


def test_the_command_prints_its_counts(capsys: pytest.CaptureFixture[str]):
    main(["--episodes", "6"])
    printed = capsys.readouterr().out
    assert printed.startswith("episodes   6, solved ")
    assert "recall" in printed
