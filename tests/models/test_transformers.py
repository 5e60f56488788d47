"""Training, copies and files of an in-process model."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.errors import InputError
from harness.model import (
    LossOutput,
    MicroBatch,
    ModelContext,
    OptimizerConfig,
    Request,
    Sampling,
    TrainingRow,
    UnsupportedOption,
)
from harness.models.mini import MiniModel
from harness.models.scoring import entropy
from harness.models.transformers import TransformersModel, open_transformers
from harness.training.packing import micro_batches
from tests.models.tiny import advantages, prompts, reinforce, requests, sampled_rows, tiny

RATE = OptimizerConfig(lr=1e-2)


def split(rows: list[TrainingRow], max_tokens: int) -> list[MicroBatch]:
    weights = np.linspace(1, 2, len(rows))
    return micro_batches(
        rows, weights / weights.sum(), {"advantages": advantages(rows)}, max_tokens=max_tokens, max_padding=1.0
    )


def gradients(model: MiniModel) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.network.parameters() if parameter.grad is not None]


def test_log_probabilities_do_not_depend_on_company_or_order() -> None:
    model = tiny()
    rows = sampled_rows(model, 20)
    together = model.logprobs(rows, temperature=1.0)
    small = model.logprobs(rows[::-1], temperature=1.0, batch_tokens=40)[::-1]
    for row, first, second in zip(rows, together, small, strict=True):
        assert len(first) == len(row.ids)
        assert np.allclose(first, second, atol=1e-5)
        assert np.allclose(first, model.logprobs([row], temperature=1.0)[0], atol=1e-5)
    assert model.logprobs([], temperature=1.0) == []


def test_log_probabilities_equal_a_plain_forward_pass() -> None:
    model = tiny()
    for row, values in zip(
        sampled_rows(model, 5), model.logprobs(sampled_rows(model, 5), temperature=0.7), strict=True
    ):
        logits = model.network(input_ids=torch.tensor([row.prompt_ids + row.ids])).logits[0]
        table = torch.log_softmax(logits / 0.7, dim=-1)
        expected = [table[len(row.prompt_ids) - 1 + t, token].item() for t, token in enumerate(row.ids)]
        assert np.allclose(values, expected, atol=1e-5)


def test_no_logits_are_made_for_prompts() -> None:
    model = tiny()
    made: list[int] = []
    model.network.lm_head.register_forward_hook(lambda module, args, out: made.append(out.shape[1]))
    row = TrainingRow(tuple(range(3, 20)), (5, 6, 1))
    model.logprobs([row], temperature=1.0)
    assert made == [3]


def test_entropy_is_that_of_the_tempered_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    distribution = torch.distributions.Categorical(logits=logits / 0.7)
    assert torch.allclose(entropy(logits, 0.7), distribution.entropy(), atol=1e-6)
    assert not torch.allclose(entropy(logits, 1.0), distribution.entropy(), atol=1e-2)


def test_the_loss_sees_the_layout_of_its_micro_batch() -> None:
    """Values stand at the left of their line, in the order of the rows, with zeros outside the mask."""
    model = tiny()
    rows = sampled_rows(model, 10)
    model.configure(RATE)
    expected = {row: values for row, values in zip(rows, model.logprobs(rows, temperature=1.0), strict=True)}

    def check(logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch) -> LossOutput:
        assert logp.shape == entropies.shape == batch.mask.shape
        for row, line, uncertainty, mask in zip(batch.rows, logp, entropies, batch.mask, strict=True):
            n = len(row.ids)
            assert np.allclose(line[:n].detach().numpy(), expected[row], atol=1e-5)
            assert (uncertainty[:n] > 0).all()
            assert not line[n:].any()
            assert not uncertainty[n:].any()
            assert mask.tolist() == [1.0] * n + [0.0] * (len(mask) - n)
        return reinforce(logp, entropies, batch)

    model.update(check, split(rows, 10_000), temperature=1.0)


def test_the_split_into_micro_batches_changes_nothing() -> None:
    """Facts 4.9: gradients agree to 1e-6, whatever the padding that each row met."""
    rows = sampled_rows(tiny(), 16)
    found = []
    for max_tokens in (10_000, 60, 1):
        model = tiny()
        model.configure(RATE)
        batches = split(rows, max_tokens)
        stats = model.update(reinforce, batches, temperature=0.7)
        found.append((len(batches), gradients(model), stats))
    assert [count for count, _, _ in found] == [1, found[1][0], 16]
    assert 1 < found[1][0] < 16
    for _, grads, stats in found[1:]:
        for mine, whole in zip(grads, found[0][1], strict=True):
            assert torch.allclose(mine, whole, atol=1e-6)
        assert stats.loss == pytest.approx(found[0][2].loss, abs=1e-5)
        assert stats.grad_norm == pytest.approx(found[0][2].grad_norm, abs=1e-5)
        assert stats.metrics == found[0][2].metrics == {"tokens": sum(len(row.ids) for row in rows)}


def test_an_update_moves_probability_to_what_was_rewarded() -> None:
    model = tiny()
    rows = sampled_rows(model, 8)
    model.configure(RATE)
    arrays = {"advantages": [np.ones(len(row.ids), dtype=np.float32) for row in rows]}
    batches = micro_batches(rows, np.full(8, 1 / 8), arrays, max_tokens=1000)
    before = np.concatenate(model.logprobs(rows, temperature=1.0)).mean()
    for _ in range(5):
        model.update(reinforce, batches, temperature=1.0)
    assert np.concatenate(model.logprobs(rows, temperature=1.0)).mean() > before + 0.1
    assert model.version == 5
    assert model.generate(requests(prompts(1)))[0].version == 5


def test_gradients_are_clipped_and_reported_unclipped() -> None:
    rows = sampled_rows(tiny(), 8)
    model = tiny()
    model.configure(OptimizerConfig(lr=1e-2, max_grad_norm=1e-3))
    stats = model.update(reinforce, split(rows, 1000), temperature=1.0)
    norm = float(torch.stack([gradient.norm() for gradient in gradients(model)]).norm())
    assert norm == pytest.approx(1e-3, rel=1e-3)
    assert stats.grad_norm > 1e-2


def test_a_bad_number_stops_before_the_step() -> None:
    model = tiny()
    rows = sampled_rows(model, 4)
    model.configure(RATE)
    digest = model.digest
    batches = split(rows, 1000)

    def bad_loss(logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch) -> LossOutput:
        return LossOutput(logp.sum() * float("nan"))

    def bad_gradient(logp: torch.Tensor, entropies: torch.Tensor, batch: MicroBatch) -> LossOutput:
        return LossOutput((logp.sum() * 0).abs().sqrt())  # the value is 0, the slope of the root there is not finite

    with pytest.raises(FloatingPointError, match="loss of micro-batch 0 of 1 is nan"):
        model.update(bad_loss, batches, temperature=1.0)
    with pytest.raises(FloatingPointError, match="gradient norm is nan"):
        model.update(bad_gradient, batches, temperature=1.0)
    assert (model.digest, model.version) == (digest, 0)
    model.update(reinforce, batches, temperature=1.0)


def test_updating_needs_an_optimiser_and_rows() -> None:
    model = tiny()
    batches = split(sampled_rows(model, 2), 1000)
    with pytest.raises(RuntimeError, match="no optimiser yet; call configure"):
        model.update(reinforce, batches, temperature=1.0)
    model.configure(RATE)
    with pytest.raises(ValueError, match="at least one micro-batch"):
        model.update(reinforce, [], temperature=1.0)
    with pytest.raises(ValueError, match="a row needs a prompt and a response, got 0 and 1 ids"):
        model.logprobs([TrainingRow((), (3,))], temperature=1.0)


def test_a_frozen_copy_stays_behind() -> None:
    model = tiny()
    rows = sampled_rows(model, 6)
    model.configure(RATE)
    reference = model.frozen_copy()
    before = np.concatenate(reference.logprobs(rows, temperature=1.0))
    model.update(reinforce, split(rows, 1000), temperature=1.0)
    assert np.array_equal(np.concatenate(reference.logprobs(rows, temperature=1.0)), before)
    assert not np.allclose(np.concatenate(model.logprobs(rows, temperature=1.0)), before, atol=1e-4)
    assert (reference.version, model.version) == (0, 1)
    with pytest.raises(RuntimeError, match="frozen copy"):
        reference.update(reinforce, split(rows, 1000), temperature=1.0)
    with pytest.raises(UnsupportedOption, match="frozen copy"):
        reference.configure(RATE)


def test_training_goes_on_bit_for_bit_after_loading(tmp_path: Path) -> None:
    model = tiny()
    rows = sampled_rows(model, 10)
    batches = split(rows, 200)
    model.configure(OptimizerConfig(lr=1e-2, weight_decay=0.1, betas=(0.8, 0.99)))
    for _ in range(2):
        model.update(reinforce, batches, temperature=1.0)
    model.save(tmp_path)
    other = tiny(seed=5)
    other.load(tmp_path)
    assert other.digest == model.digest
    for each in (model, other):
        for _ in range(2):
            each.update(reinforce, batches, temperature=1.0)
    assert other.digest == model.digest
    assert other.version == model.version == 4
    batch = requests(prompts(8))
    assert other.generate(batch) == model.generate(batch)


def test_weights_without_an_optimiser_load_too(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path)
    other = tiny(seed=5)
    other.configure(RATE)
    other.load(tmp_path)
    assert other.digest == model.digest
    with pytest.raises(RuntimeError, match="no optimiser yet"):
        other.update(reinforce, split(sampled_rows(model, 2), 1000), temperature=1.0)
    trained = tiny(seed=6)
    trained.configure(RATE)
    trained.save(tmp_path)
    reference = model.frozen_copy()
    reference.load(tmp_path)
    assert reference.digest == trained.digest


def test_the_digest_names_the_weights() -> None:
    model = tiny()
    assert model.digest == tiny().digest != tiny(seed=1).digest
    changed = copy.deepcopy(model)
    with torch.no_grad():
        changed.network.model.norm.weight[0] += 1e-6
    assert changed.digest != model.digest
    assert len(model.digest) == 16


def test_half_precision_needs_a_cpu_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 in emulation computes at 1/80 of float32's speed: better refused than waited for."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False}, raising=False)
    for dtype in ("bfloat16", "float16"):
        with pytest.raises(UnsupportedOption, match=f"no {dtype} instructions.*use dtype=float32"):
            TransformersModel(tiny().network, tiny().words, dtype=dtype, device="cpu")
    with pytest.raises(ValueError, match="unknown dtype 'int8'"):
        TransformersModel(tiny().network, tiny().words, dtype="int8", device="cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    model = TransformersModel(tiny().network, tiny().words, dtype="bfloat16", device="cpu")
    assert model.network.dtype == torch.bfloat16
    with pytest.raises(UnsupportedOption, match=r"training in torch.bfloat16 loses steps.*use dtype=float32"):
        model.configure(RATE)
    assert TransformersModel(tiny().network, tiny().words).network.dtype == torch.float32


def test_a_network_in_memory_needs_its_tokenizer() -> None:
    with pytest.raises(ValueError, match="pass tokenizer="):
        TransformersModel(tiny().network)


def test_a_folder_of_the_library_opens(tmp_path: Path) -> None:
    """The way of `--model transformers:PATH`: the library's own files, tokenizer and chat template."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    model = tiny()
    vocabulary = {word: index for index, word in enumerate(model.words.vocabulary)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    theirs = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")
    theirs.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}{{ 'z' if add_generation_prompt }}"
    model.network.save_pretrained(tmp_path)
    theirs.save_pretrained(tmp_path)
    opened = open_transformers(str(tmp_path), ModelContext("webshop", device="cpu"))
    prompt = prompts(1)[0]
    assert opened.encode(prompt) == (*model.encode(prompt), vocabulary["z"])
    assert opened.name == str(tmp_path)
    batch = [Request((i,), prompt, Sampling(max_tokens=8, temperature=3.0, seed=i)) for i in range(20)]
    for completion in opened.generate(batch):
        letters = "".join(model.words.vocabulary[i] for i in completion.token_ids if i > 2)
        assert completion.text.replace(" ", "").replace("<pad>", "") == letters  # blanks are the tokenizer's matter
    with pytest.raises(InputError, match="needs an id or a path"):
        open_transformers("", ModelContext("webshop"))


def test_only_the_cpu_is_deterministic_unless_torch_was_told_to_be() -> None:
    model = tiny()
    assert model.deterministic
    model.device = torch.device("cuda")
    assert not model.deterministic
    torch.use_deterministic_algorithms(True)
    try:
        assert model.deterministic
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("device", ["cudaa", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_here_is_named_with_a_way_out(device: str) -> None:
    with pytest.raises(InputError, match=f'device "{device}" cannot be used here .*; use device=auto, cpu, cuda'):
        TransformersModel(tiny().network, tiny().words, device=device)


def test_weights_that_are_not_there_are_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for target in ("/nonexistent", str(tmp_path), "no such id"):
        with pytest.raises(InputError, match=f'model "transformers:{target}" cannot be loaded .*; give the folder of'):
            open_transformers(target, ModelContext("webshop", device="cpu"))


def test_a_prompt_is_counted_as_it_is_encoded() -> None:
    model = tiny()
    assert model.count(prompts(1)[0]) == len(model.encode(prompts(1)[0]))
    assert model.positions == 64
