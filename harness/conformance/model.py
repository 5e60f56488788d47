"""Does a model keep its contract (`harness.model`)?"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.conformance.findings import Finding, Skipped, require, run_checks
from harness.model import Model, Prompt, Request, Sampling, TrainableModel, TrainingRow, UnsupportedOption
from harness.types import Completion

_DRAWS = 384
"""First tokens drawn for the check of the log-probabilities."""

_WIDTH = 5.0
"""Standard errors that a frequency may lie from its probability: about one false alarm in a million tokens."""

_TOLERANCE = 1e-3
"""Of a log-probability; batches move logits by about 1e-6."""


@dataclass
class ModelUnderTest:
    """A model under test.

    Attributes:
        open_model: opens it.
        prompts: what it is asked.
        sampling: how; the seed is replaced.
    """

    open_model: Callable[[], Model]
    prompts: Sequence[Prompt]
    sampling: Sampling

    @cached_property
    def model(self) -> Model:
        return self.open_model()

    def ask(
        self, prompts: Sequence[Prompt], samplings: Sequence[Sampling], model: Model | None = None
    ) -> list[Completion]:
        """One batch, or concurrent calls to a remote model."""
        model = model or self.model
        if model.in_process:
            pairs = enumerate(zip(prompts, samplings, strict=True))
            return model.generate([Request(("check", i), *pair) for i, pair in pairs])
        return asyncio.run(_all(model, prompts, samplings))

    def at(self, seed: int) -> Sampling:
        return dataclasses.replace(self.sampling, seed=seed)

    def mixed(self) -> tuple[list[Prompt], list[Sampling]]:
        """Each prompt under two seeds."""
        pairs = [(prompt, self.at(seed)) for prompt in self.prompts for seed in (1, 2)]
        return [prompt for prompt, _ in pairs], [sampling for _, sampling in pairs]


async def _all(model: Model, prompts: Sequence[Prompt], samplings: Sequence[Sampling]) -> list[Completion]:
    return await asyncio.gather(*(model.complete(*pair) for pair in zip(prompts, samplings, strict=True)))


def check_model(
    open_model: Callable[[], Model],
    prompts: Sequence[Prompt],
    *,
    sampling: Sampling | None = None,
    only: Collection[str] | None = None,
) -> list[Finding]:
    """Check a model against its contract.

    Args:
        open_model: opens it; some checks open it again, to see whether it answers the same.
        prompts: what it is asked; of different lengths, so that a batch of them is padded.
        sampling: temperature 1 and 16 tokens by default; the log-probabilities are checked under the papers' truncated
            sampling too.
        only: names of checks; all by default.
    """
    context = ModelUnderTest(open_model, tuple(prompts), sampling or Sampling(max_tokens=16))
    return run_checks(CHECKS, context, only)


def _repeats(context: ModelUnderTest) -> None:
    _needs_determinism(context)
    asked = context.mixed()
    first = context.ask(*asked)
    _same(first, context.ask(*asked), "asked again")
    _same(first, context.ask(*asked, model=context.open_model()), "opened and asked again")


def _alone(context: ModelUnderTest) -> None:
    _needs_determinism(context)
    prompts, samplings = context.mixed()
    batched = context.ask(prompts, samplings)
    alone = [context.ask([p], [s])[0] for p, s in zip(prompts, samplings, strict=True)]
    _same(batched, alone, "asked alone")
    _same(batched, context.ask(prompts[::-1], samplings[::-1])[::-1], "asked in another order")


def _seed_counts(context: ModelUnderTest) -> None:
    answers = context.ask([context.prompts[0]] * 16, [context.at(seed) for seed in range(16)])
    if all(answer.logprobs and sum(answer.logprobs) > -0.01 for answer in answers):
        raise Skipped("the model is certain of its answer to the first prompt")
    require(len({answer.text for answer in answers}) > 1, "16 seeds gave one answer of a model that is not certain")


def _greedy(context: ModelUnderTest) -> None:
    greedy = [dataclasses.replace(context.sampling, temperature=0.0, seed=seed) for seed in (1, 2)]
    first, second = context.ask([context.prompts[0]] * 2, greedy)
    require(first.text == second.text, f"at temperature 0 two seeds gave {first.text!r} and {second.text!r}")


def _limit(context: ModelUnderTest) -> None:
    for limit in (1, 3):
        samplings = [dataclasses.replace(context.at(seed), max_tokens=limit) for seed in range(len(context.prompts))]
        for answer in context.ask(context.prompts, samplings):
            tokens = len(answer.token_ids) or answer.usage.tokens_out
            require(tokens <= limit, f"{tokens} tokens came back, {limit} were allowed")
            if answer.finish_reason == "length":
                require(tokens == limit, f"an answer of {tokens} tokens says that it was cut at {limit}")
    whole = context.ask(context.prompts, [context.at(0)] * len(context.prompts))
    require(all(a.finish_reason in ("stop", "length") for a in whole), "finish_reason is neither stop nor length")


def _usage(context: ModelUnderTest) -> None:
    for answer in context.ask(*context.mixed()):
        usage = answer.usage
        require(usage.calls == 1, f"a call counts {usage.calls} calls")
        require(usage.tokens_in > 0, "a call counts no prompt tokens")
        if answer.token_ids:
            sampled = len(answer.token_ids)
            require(usage.tokens_out == sampled, f"{usage.tokens_out} tokens counted, {sampled} sampled")


def _shapes(context: ModelUnderTest) -> None:
    for answer in _with_logprobs(context):
        ids, logprobs = answer.token_ids, answer.logprobs
        require(len(ids) == len(logprobs), f"{len(ids)} token ids and {len(logprobs)} log-probabilities")
        require(all(math.isfinite(p) and p <= 1e-6 for p in logprobs), f"log-probabilities {logprobs} are not all <= 0")
        require(bool(answer.prompt_ids), "an answer without prompt_ids cannot be trained on")


def _frequencies(context: ModelUnderTest) -> None:
    _with_logprobs(context)
    for sampling in (Sampling(max_tokens=1), Sampling(0.7, 0.8, 20, max_tokens=1)):
        try:
            context.model.check(sampling)
        except UnsupportedOption:
            continue
        _frequencies_under(context, sampling)


def _frequencies_under(context: ModelUnderTest, sampling: Sampling) -> None:
    seeded = [dataclasses.replace(sampling, seed=seed) for seed in range(_DRAWS)]
    drawn = context.ask([context.prompts[0]] * _DRAWS, seeded)
    told: dict[int, float] = {}
    counts: Counter[int] = Counter()
    for answer in drawn:
        token, logprob = answer.token_ids[0], answer.logprobs[0]
        counts[token] += 1
        require(abs(told.setdefault(token, logprob) - logprob) < _TOLERANCE, f"token {token} has two log-probabilities")
    where = f"at temperature {sampling.temperature}, top-p {sampling.top_p}, top-k {sampling.top_k}"
    total = sum(math.exp(logprob) for logprob in told.values())
    require(total <= 1 + _TOLERANCE, f"{where} the probabilities of the tokens seen sum to {total:.3f}")
    for token, count in counts.items():
        p = math.exp(told[token])
        width = _WIDTH * math.sqrt(max(p * (1 - p), 1 / _DRAWS) / _DRAWS)
        require(
            abs(count / _DRAWS - p) <= width,
            f"{where} token {token} was told to have probability {p:.3f} and came {count} times in {_DRAWS}; "
            "log-probabilities are those of the distribution that was sampled from",
        )


def _rescored(context: ModelUnderTest) -> None:
    model = context.model
    if not isinstance(model, TrainableModel):
        raise Skipped("the model is not trainable")
    answers = context.ask(*context.mixed())
    rows = [TrainingRow(answer.prompt_ids, answer.token_ids) for answer in answers]
    scored = model.logprobs(rows, temperature=context.sampling.temperature)
    for answer, again in zip(answers, scored, strict=True):
        worst = max(abs(float(a) - b) for a, b in zip(again, answer.logprobs, strict=True))
        require(worst < _TOLERANCE, f"logprobs() differs by {worst:.2g} from what was recorded at sampling")


def _critic(context: ModelUnderTest) -> None:
    model = context.model
    if not isinstance(model, TrainableModel):
        raise Skipped("the model is not trainable")
    try:
        critic = model.with_value_head()
    except UnsupportedOption as error:
        raise Skipped(str(error)) from error
    answers = context.ask(*context.mixed())
    rows = [TrainingRow(answer.prompt_ids, answer.token_ids) for answer in answers]
    for row, values in zip(rows, critic.values(rows), strict=True):
        require(len(values) == len(row.ids), f"{len(values)} values for {len(row.ids)} response tokens")
        require(all(math.isfinite(value) for value in values), f"values {list(values)} are not all finite")
        (alone,) = critic.values([row])
        worst = max(abs(float(a) - float(b)) for a, b in zip(values, alone, strict=True))
        require(worst < _TOLERANCE, f"a row's values differ by {worst:.2g} alone and in a batch")


def _with_logprobs(context: ModelUnderTest) -> list[Completion]:
    answers = context.ask(*context.mixed())
    if not any(answer.token_ids or answer.logprobs for answer in answers):
        raise Skipped("the engine tells neither token ids nor log-probabilities; it cannot be trained with")
    return answers


def _same(first: Sequence[Completion], second: Sequence[Completion], how: str) -> None:
    for one, other in zip(first, second, strict=True):
        require(one.text == other.text, f"{how}, {one.text!r} became {other.text!r}")
        require(one.token_ids == other.token_ids, f"{how}, {one.text!r} has other token ids")


def _needs_determinism(context: ModelUnderTest) -> None:
    if not context.model.deterministic:
        raise Skipped("the model says that it is not deterministic")


CHECKS = {
    "same request, same answer": _repeats,
    "same answer alone and in a batch": _alone,
    "the seed counts": _seed_counts,
    "greedy ignores the seed": _greedy,
    "token limit": _limit,
    "usage": _usage,
    "one log-probability for each id": _shapes,
    "log-probabilities are those of what was sampled": _frequencies,
    "scored again as sampled": _rescored,
    "a critic gives one value for each id": _critic,
}
