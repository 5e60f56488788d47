"""What the rollout benchmark counts; its seconds are for people to read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
import torch

from baselines.grpo import GRPO
from benchmarks.rollout import Played, Setting, difference, main, play_harness, play_lock_step
from harness.batching import Lane
from harness.models.mini import MiniConfig, MiniModel, WordTokenizer
from harness.types import Status, Verdict
from tests.toys import ToyEnv

SHAPE = MiniConfig(hidden=16, layers=1, heads=2, kv_heads=1, ff=16)
SPECIALS = ("<pad>", "<eos>", "<unk>")
ACTIONS = tuple(f"<action>{action}</action>" for action in ("left", "right", "stop"))
"""One word each, so that an untaught policy acts now and then and its episodes end at different steps."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the benchmark sets it; networks this small only wait for their threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def setting() -> Setting:
    """Four episodes of two tasks in the corridor."""
    model = MiniModel.fresh(WordTokenizer((*SPECIALS, *ACTIONS, "Walk")), SHAPE, seed=0)
    method = GRPO(GRPO.Config(max_tokens=6), spec=ToyEnv.spec, view="compact", seed=0)
    tasks = ToyEnv(view="compact").tasks("train")[:2]
    return Setting(model, method, lambda: ToyEnv(view="compact"), tasks, rollouts=2, seed=0)


def test_both_loops_play_the_same_tasks_from_the_same_states(setting: Setting):
    ours, peer = play_harness(setting, 0), play_lock_step(setting, 0)
    assert [t.task.id for t in ours.trajectories] == [t.task.id for t in peer.trajectories]
    assert [t.seed for t in ours.trajectories] == [t.seed for t in peer.trajectories]
    assert [t.first for t in ours.trajectories] == [t.first for t in peer.trajectories]
    assert len(ours.trajectories) == 4


def test_every_reply_is_one_step(setting: Setting):
    for played in (play_harness(setting, 0), play_lock_step(setting, 0)):
        assert played.replies == played.steps == sum(len(t.steps) for t in played.trajectories)
        assert played.tokens.decode_used == played.response_tokens - played.replies


def test_the_harness_decodes_nothing_in_vain_and_prefills_shared_prompts_once(setting: Setting):
    """Rollouts of a task start with one prompt, so less is computed than used, but for padding within a pass."""
    tokens = play_harness(setting, 0).tokens
    assert tokens.decode_computed == tokens.decode_used
    assert tokens.prefill_computed < tokens.prefill_used


def test_the_lock_step_loop_computes_all_rows_until_the_last_one_ends(setting: Setting):
    """Its bound from below: every row of every step is prefilled, and one row at least is as long as the longest."""
    played = play_lock_step(setting, 0)
    lengths = [len(t.steps) for t in played.trajectories]
    assert min(lengths) < max(lengths), "the case under test: some episodes end before the others"
    tokens = played.tokens
    assert tokens.prefill_used <= tokens.prefill_computed
    assert tokens.decode_used <= tokens.decode_computed
    assert tokens.decode_computed % len(lengths) == 0
    with setting.world(Lane()) as world:
        first = [setting.method.prompts.act(episode) for episode in setting.episodes(world, 0)]
    shortest = min(len(setting.model.encode(prompt)) for prompt in first)
    assert tokens.prefill_computed >= len(lengths) * max(lengths) * shortest


def test_equal_seeds_give_equal_runs_and_torch_is_left_alone(setting: Setting):
    before = torch.random.get_rng_state()
    for play in (play_harness, play_lock_step):
        once, again, other = play(setting, 0), play(setting, 0), play(setting, 1)
        assert once.tokens == again.tokens
        assert [t.steps for t in once.trajectories] == [t.steps for t in again.trajectories]
        assert [t.steps for t in once.trajectories] != [t.steps for t in other.trajectories]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_both_loops_sample_from_one_distribution(setting: Setting):
    """Many episodes of a policy that nobody taught: what differs is noise (three standard errors)."""
    many = replace(setting, rollouts=100)
    ours, peer = play_harness(many, 0), play_lock_step(many, 0)
    gap, error = difference([(ours, peer)], attrgetter("success"))
    assert error > 0
    assert abs(gap) <= 3 * error
    lengths = [np.array([len(t.steps) for t in played.trajectories]) for played in (ours, peer)]
    noise = np.sqrt(sum(np.var(values) / len(values) for values in lengths))
    assert abs(lengths[0].mean() - lengths[1].mean()) <= 3 * noise
    # A geometric response has mean 1 / p and a smaller standard deviation; replies number about 1,000.
    means = [played.response_tokens / played.replies for played in (ours, peer)]
    assert means[0] == pytest.approx(means[1], rel=3 * np.sqrt(2 / min(ours.replies, peer.replies)))


def test_difference_of_success_and_its_error_by_hand(setting: Setting):
    """Two tasks, two episodes each: rates 1/2 and 1 against 0 and 1; only the first task's 1/2 has a variance, 1/4."""
    ours, peer = play_harness(setting, 0), play_lock_step(setting, 0)
    pair = (_with_success(ours, [True, False, True, True]), _with_success(peer, [False, False, True, True]))
    gap, error = difference([pair], attrgetter("success"))
    assert gap == pytest.approx(1 / 4)
    assert error == pytest.approx(np.sqrt(1 / 4 / 2) / 2)


def _with_success(played: Played, wins: list[bool]) -> Played:
    judged = [
        replace(trajectory, verdict=Verdict(Status.OK, success=win, score=float(win)))
        for trajectory, win in zip(played.trajectories, wins, strict=True)
    ]
    return replace(played, trajectories=judged)


def test_the_command_prints_both_sections(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    model = MiniModel.fresh(WordTokenizer((*SPECIALS, "act", "plan")), SHAPE, seed=0)
    model.export(tmp_path / "policy", card="untaught, for tests", recipe={})
    main(["--model", f"mini:{tmp_path / 'policy'}", "--episodes", "4", "--tasks", "2", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert "lock-step: left padding to the longest prompt of the batch; finished episodes keep generating" in printed
    assert "env steps/s" in printed
    # 2 x 8 candidates of each task's strategy from one prefill: 15 of 16 prompts come from the cache.
    strategy = next(line for line in printed.splitlines() if line.startswith("strategy")).split()
    assert strategy[1] == "32"
    assert strategy[4] == "93.8%"


def test_episodes_have_to_be_a_multiple_of_tasks(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--episodes", "10", "--tasks", "4"])
    assert "--episodes 10 is no multiple of --tasks 4" in capsys.readouterr().err
