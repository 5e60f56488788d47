"""A tree of prefixes: every distinct prefix once, and along its paths the numbers of the padded computation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model import LossOutput, MicroBatch, OptimizerConfig, TrainingRow
from harness.models.mini import MiniModel
from harness.models.prefixes import ATTENTION, PrefixTree, shared, shares_prefixes
from harness.models.scoring import Reading, response_logits, scores
from harness.training.losses import token_logprobs
from harness.training.packing import micro_batches
from harness.training.surrogate import SurrogateLoss
from tests.models.tiny import advantages, prompts, reinforce, requests, sampled_rows, tiny

CPU = torch.device("cpu")
SEQUENCES = st.lists(st.lists(st.integers(3, 5), min_size=1, max_size=9), min_size=1, max_size=12)


@contextmanager
def padding(model: MiniModel) -> Iterator[None]:
    """Computes without the tree, by padding."""
    model.network.set_attn_implementation("eager")
    yield
    model.network.set_attn_implementation("sdpa")


def siblings(model: MiniModel) -> list[TrainingRow]:
    """Rows with equal prompts, with equal heads, one that goes on where another's response ends, and one twice."""
    rows = sampled_rows(model, 6)
    base = rows[0]
    return [
        *rows,
        TrainingRow(base.prompt_ids, (4, 5, 1)),
        TrainingRow(base.prompt_ids + base.ids, (6, 7)),
        TrainingRow((*base.prompt_ids[:2], 9, 9), (8, 1)),
        base,
        TrainingRow((base.prompt_ids[0],), (3,)),
    ]


@given(sequences=SEQUENCES)
def test_the_line_holds_every_distinct_prefix_once(sequences: list[list[int]]) -> None:
    tree = PrefixTree.of(sequences, CPU)
    prefixes = {tuple(sequence[:n]) for sequence in sequences for n in range(1, len(sequence) + 1)}
    assert len(tree.ids) == len(tree.positions) == len(prefixes)
    for sequence, path in zip(sequences, tree.paths, strict=True):
        assert tree.ids[path].tolist() == sequence
        assert tree.positions[path].tolist() == list(range(len(sequence)))


@given(sequences=SEQUENCES)
def test_every_place_asks_once_and_sees_its_own_prefix(sequences: list[list[int]]) -> None:
    tree = PrefixTree.of(sequences, CPU)
    prefix = {int(path[n]): path[: n + 1].tolist() for path in tree.paths for n in range(len(path))}
    asked = torch.cat([block.queries.flatten() for block in tree.blocks])
    assert asked[tree.where].tolist() == list(range(len(tree.ids)))
    seen = [
        keys[mask].tolist()
        for block in tree.blocks
        for keys, masks in zip(block.keys, block.mask[:, 0], strict=True)
        for mask in masks
    ]
    assert all(seen), "a query that sees nothing would be nan"
    for place, entry in enumerate(tree.where.tolist()):
        assert seen[entry] == prefix[place]


def test_log_probabilities_equal_those_of_the_padded_computation() -> None:
    model = tiny()
    rows = siblings(model)
    together = model.logprobs(rows, temperature=0.7)
    with padding(model):
        expected = model.logprobs(rows, temperature=0.7)
    for row, mine, theirs in zip(rows, together, expected, strict=True):
        assert mine.shape == (len(row.ids),)
        assert np.allclose(mine, theirs, atol=1e-5)


def test_an_update_equals_that_of_the_padded_computation() -> None:
    """Loss, log-probabilities, entropies and gradient; what the tree shares gets the gradient of all its rows."""
    found = []
    for pads in (False, True):
        model = tiny()
        rows = siblings(model)
        model.configure(OptimizerConfig(lr=1e-2))
        weights = np.linspace(1, 2, len(rows))
        batches = micro_batches(rows, weights / weights.sum(), {"advantages": advantages(rows)}, max_tokens=1000)
        seen: list[torch.Tensor] = []

        def loss(
            logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch, seen: list[torch.Tensor] = seen
        ) -> LossOutput:
            seen.extend((logp.detach(), entropies.detach()))
            return reinforce(logp, entropies, batch)

        if pads:
            with padding(model):
                stats = model.update(loss, batches, temperature=0.7)
        else:
            stats = model.update(loss, batches, temperature=0.7)
        gradients = [parameter.grad.clone() for parameter in model.network.parameters()]
        found.append((stats, seen, gradients))
    (mine, seen, gradients), (theirs, expected, slopes) = found
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-5)
    for one, other in zip(seen, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    for one, other in zip(gradients, slopes, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(shapes=st.lists(st.tuples(SEQUENCES.map(lambda s: s[0]), SEQUENCES.map(lambda s: s[0])), min_size=1, max_size=8))
def test_any_rows_score_as_each_alone(shapes: list[tuple[list[int], list[int]]]) -> None:
    model = tiny()
    rows = [TrainingRow(tuple(prompt), tuple(ids)) for prompt, ids in shapes]
    with torch.inference_mode():
        logits, ids, where = response_logits(model.network, rows, CPU)
        table = token_logprobs(logits, ids)[where]
        for row, line in zip(rows, table, strict=True):
            plain = model.network(input_ids=torch.tensor([row.prompt_ids + row.ids])).logits[0]
            expected = token_logprobs(plain[len(row.prompt_ids) - 1 : -1], torch.tensor(row.ids))
            assert torch.allclose(line[: len(row.ids)], expected, atol=1e-5)


def test_a_reading_counts_its_tokens() -> None:
    """The last token of a response is predicted and never read."""
    model = tiny()
    rows = [TrainingRow((3, 4, 5), (6, 1)), TrainingRow((3, 4), (7, 8, 1)), TrainingRow((3,), (1,))]
    tree = Reading.of(model.network, rows, CPU)
    assert (tree.tokens, tree.used, tree.shared) == (6, 9, True)
    with padding(model):
        rectangle = Reading.of(model.network, rows, CPU)
    assert (rectangle.tokens, rectangle.used, rectangle.shared) == (12, 9, False)


def test_only_plain_attention_follows_a_tree() -> None:
    network = tiny().network
    assert shares_prefixes(network)
    for name, value in (
        ("model_type", "gemma2"),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("_attn_implementation", "eager"),
        ("rope_parameters", {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
    ):
        kept = getattr(network.config, name)
        setattr(network.config, name, value)
        assert not shares_prefixes(network), name
        setattr(network.config, name, kept)


def test_layers_that_are_computed_again_for_the_gradient_do_not_follow_a_tree() -> None:
    """Gradient checkpointing runs them after the pass, when the attention is the plain one again."""
    network = tiny().network
    network.gradient_checkpointing_enable()
    assert not shares_prefixes(network)
    network.gradient_checkpointing_disable()
    assert shares_prefixes(network)


def test_where_masks_would_be_too_large_lines_stand_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    rows = sampled_rows(model, 4)
    answers = model.generate(requests(prompts(4)))
    scored = model.logprobs(rows, temperature=1.0)
    monkeypatch.setattr("harness.models.prefixes.MOST_MASK", 10)
    assert not Reading.of(model.network, rows, CPU).shared
    assert [answer.token_ids for answer in model.generate(requests(prompts(4)))] == [a.token_ids for a in answers]
    for one, other in zip(model.logprobs(rows, temperature=1.0), scored, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_entropies_are_constants_where_the_loss_asks_for_no_gradient() -> None:
    model = tiny()
    rows = sampled_rows(model, 3)
    batch = micro_batches(rows, [1 / 3] * 3, {"advantages": advantages(rows)}, max_tokens=10_000)[0]
    (_, free), (logp, fixed) = (
        scores(model.network, batch, 1.0, CPU, entropy_gradient=wanted) for wanted in (True, False)
    )
    assert (free.requires_grad, fixed.requires_grad, logp.requires_grad) == (True, False, True)
    assert torch.equal(free, fixed)
    assert [SurrogateLoss(0.2, 0.28, entropy=weight).entropy_gradient for weight in (0.0, 0.01)] == [False, True]


def test_the_network_is_left_as_it_was() -> None:
    network = tiny().network
    with shared(network):
        assert network.config._attn_implementation == ATTENTION
    assert network.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match="input_ids"), shared(network):
        network()
    assert network.config._attn_implementation == "sdpa"
