"""What the training benchmark counts, and that both loops end with the same weights; its seconds are for people."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from baselines.grpo import GRPO
from baselines.vanilla import Vanilla
from benchmarks import training
from benchmarks.padded_loop import MiniBatch, PaddedLoop
from benchmarks.rollout import Setting
from benchmarks.training import Peer, largest_difference, measure, our_tokens, peer_updated, table, updated
from harness.model import Kit, OptimizerConfig, TrainingRow
from harness.models.mini import MiniConfig, MiniModel, WordTokenizer
from harness.training.surrogate import SurrogateLoss
from tests.models.tiny import sampled_rows, tiny
from tests.toys import ToyEnv

RATE = OptimizerConfig(lr=1e-3)
LOSS = SurrogateLoss(clip_low=0.2, clip_high=0.28, entropy=0.01)
SHAPE = MiniConfig(hidden=16, layers=1, heads=2, kv_heads=1, ff=16)
ACTIONS = tuple(f"<action>{action}</action>" for action in ("left", "right", "stop"))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def mini_batch(model: MiniModel, n: int = 12) -> MiniBatch:
    """Rows of different lengths; the second half answers the prompts of the first once more."""
    rows = sampled_rows(model, n // 2)
    rows += [TrainingRow(row.prompt_ids, (*row.ids[:2], 1)) for row in rows]
    old = model.logprobs(rows, temperature=0.7)
    advantages = [np.full(len(row.ids), (-1) ** i * (1 + i), dtype=np.float32) for i, row in enumerate(rows)]
    weights = np.full(n, 1 / n, dtype=np.float32)
    return MiniBatch(rows, weights, {"old_logp": old, "advantages": advantages}, LOSS, 0.7)


def corridor() -> Setting:
    """Sixteen episodes of two tasks by an untaught policy."""
    model = MiniModel.fresh(WordTokenizer(("<pad>", "<eos>", "<unk>", *ACTIONS, "Walk")), SHAPE, seed=0)
    config = GRPO.Config(max_tokens=6, rollouts=8, kl_beta=0.0, mini_batch=16)
    method = GRPO(config, spec=ToyEnv.spec, view="compact", seed=0)
    method.setup(Kit({"policy": model}))
    tasks = ToyEnv(view="compact").tasks("train")[:2]
    return Setting(model, method, lambda: ToyEnv(view="compact"), tasks, rollouts=1, seed=0)


@pytest.mark.parametrize("whole", [False, True])
def test_both_loops_end_with_the_same_weights(whole: bool) -> None:
    model = tiny()
    batches = [mini_batch(model), mini_batch(model, 8)]
    difference = largest_difference(model.network, batches, RATE, 60, Peer(rows=5, whole=whole))
    assert difference < 1e-6  # transformers normalises in float32 whatever the weights are
    moved = tiny()
    updated(moved, batches, RATE, 60)
    assert moved.digest != model.digest


def test_another_loss_ends_elsewhere() -> None:
    """The comparison would notice: one row's weight is dropped for the peer alone."""
    model = tiny()
    batch = mini_batch(model)
    ours, theirs = copy.deepcopy(model.network).double(), copy.deepcopy(model.network).double()
    peer_updated(ours, [batch], RATE, Peer(rows=5))
    peer_updated(theirs, [replace(batch, weights=batch.weights * (np.arange(12) > 0))], RATE, Peer(rows=5))
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    assert max(float((one - other).detach().abs().max()) for one, other in pairs) > training.TOLERANCE


def test_both_loops_have_the_same_loss() -> None:
    batch = mini_batch(tiny())
    model = tiny()
    model.configure(RATE)
    stats = model.update(batch.loss, training.cut(batch, 60), temperature=batch.temperature)
    peer = PaddedLoop(tiny().network, RATE, rows=5)
    assert peer.update(batch) == pytest.approx(stats.loss, abs=1e-5)


def test_tokens_by_hand() -> None:
    """Two rows with a common head of three and one of another task; every last token is never read."""
    rows = [TrainingRow((3, 4, 5), (6, 1)), TrainingRow((3, 4, 5, 7), (8, 9, 1)), TrainingRow((10,), (1,))]
    batch = MiniBatch(rows, np.ones(3, dtype=np.float32), {}, LOSS, 1.0)
    network = tiny().network
    tokens = our_tokens(network, [batch], 1000)
    assert (tokens.used, tokens.computed, tokens.padding, tokens.waste) == (4 + 6 + 1, 4 + 3 + 1, 0, 0.0)
    network.set_attn_implementation("eager")
    tokens = our_tokens(network, [batch], 1000)
    assert (tokens.used, tokens.computed, tokens.padding) == (11, 18, 7)


@pytest.mark.parametrize(("whole", "computed"), [(False, 2 * (4 + 3) + 1 + 1), (True, 3 * (4 + 3))])
def test_the_peer_pads_prompts_and_responses(whole: bool, computed: int) -> None:
    rows = [TrainingRow((3, 4, 5), (6, 1)), TrainingRow((3, 4, 5, 7), (8, 9, 1)), TrainingRow((10,), (1,))]
    arrays = {name: [np.zeros(len(row.ids), dtype=np.float32) for row in rows] for name in ("old_logp", "advantages")}
    loop = PaddedLoop(tiny().network, RATE, rows=2, whole=whole)
    loop.update(MiniBatch(rows, np.full(3, 1 / 3, dtype=np.float32), arrays, LOSS, 1.0))
    assert loop.computed == computed


def test_an_iteration_is_counted_and_leaves_no_waste() -> None:
    measured = measure(corridor(), repeats=2, peer=Peer(rows=4))
    assert measured.episodes == 16
    assert measured.updates >= 1
    assert measured.ours.waste < 0.1 < measured.peers.waste
    assert measured.ours.computed < measured.ours.used == measured.peers.used < measured.peers.computed
    assert measured.difference < training.TOLERANCE
    assert len(measured.seconds) == 2
    assert 0 < measured.rss[0] <= measured.rss[1] <= measured.rss[2]
    printed = table([measured])
    for name in ("rollout share", "harness: waste", "peer: waste", "used tokens/s", "peak RSS", "peer's time"):
        assert name in printed


def test_weights_that_do_not_agree_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "largest_difference", lambda *arguments: 1e-3)
    with pytest.raises(RuntimeError, match="grpo: a weight differs by 1e-03 after"):
        measure(corridor(), repeats=1, peer=Peer())


def test_methods_without_training_are_refused() -> None:
    setting = corridor()
    vanilla = Vanilla(Vanilla.Config(), spec=ToyEnv.spec, view="compact", seed=0)
    with pytest.raises(ValueError, match="vanilla trains no policy; choose among grpo"):
        measure(replace(setting, method=vanilla), repeats=1, peer=Peer())


def test_a_number_below_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        training.main(["--repeats", "0"])
    assert "--repeats must be at least 1, got 0" in capsys.readouterr().err
