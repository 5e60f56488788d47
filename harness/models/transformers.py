"""Any Hugging Face causal language model, sampled and trained in this process.

What is sampled is what is trained on: ids go from the decode loop into a `Completion` and from there into a
`TrainingRow`; text is never tokenised again. The network stays in evaluation mode, so that both see the same function.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from harness.errors import InputError
from harness.model import (
    Loss,
    LossOutput,
    MicroBatch,
    Prompt,
    Request,
    Sampling,
    TrainableModel,
    TrainingRow,
    UnsupportedOption,
    UpdateStats,
)
from harness.models.decoding import Chunk, Counters, Sampled, decode
from harness.models.loading import Tokenizer, device_of, precision_of, pretrained, stop_ids
from harness.models.sampling import Samplers
from harness.models.scoring import by_chunks, response_logits, scores
from harness.models.trained import TrainedNetwork
from harness.models.value import TransformersValue
from harness.training.losses import token_logprobs
from harness.training.packing import length_chunks
from harness.types import Completion, Usage

if TYPE_CHECKING:
    from harness.model import ModelContext


class TransformersModel(TrainedNetwork, TrainableModel):
    """A causal language model of `transformers`, by Hugging Face id, path, or as an object with its tokenizer.

    Args:
        model: id or path for `from_pretrained`, or a network in memory.
        tokenizer: of a network in memory; by default the one that lies beside the weights.
        name: what a row records; the id or path by default.
        dtype: of the weights: float32 (also "auto"), bfloat16 or float16. Half precisions are for sampling alone: a
            step of 1e-6 is lost in weights of 8 or 11 significant bits, so `configure` refuses them.
        device: "auto" is CUDA where there is one, else the CPU; or any name that torch knows.
        batch_tokens: bound on rows x prompt length of one pass when sampling; a prompt and its samples stay together.
        max_padding: share of padding in a pass beyond which a second one is made.

    Raises:
        InputError: a device that is not here, or weights that are not there.
        UnsupportedOption: a precision that this CPU computes only in emulation.
        ValueError: an unknown precision, or a network without its tokenizer.
    """

    backend: ClassVar[str] = "transformers"

    def __init__(
        self,
        model: Any,
        tokenizer: Tokenizer | None = None,
        *,
        name: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        batch_tokens: int = 65536,
        max_padding: float = 0.25,
    ) -> None:
        self.device = device_of(device)
        precision = precision_of(dtype, self.device)
        if isinstance(model, (str, Path)):
            self.name = name or str(model)
            model, tokenizer = pretrained(model, tokenizer, precision)
        else:
            self.name = name or type(model).__name__
        if tokenizer is None:
            raise ValueError(f"{self.name}: a network in memory needs its tokenizer; pass tokenizer=")
        self.tokenizer: Tokenizer = tokenizer
        self.network: Any = model.to(device=self.device, dtype=precision).eval()
        self.batch_tokens = batch_tokens
        self.max_padding = max_padding
        self.counters = Counters()
        self._stops = torch.tensor(stop_ids(model, tokenizer), dtype=torch.int64, device=self.device)

    @property
    def deterministic(self) -> bool:
        """True on the CPU; on a GPU only where torch was told to use deterministic algorithms alone."""
        return self.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()

    # Sampling

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Ids of a prompt: through the tokenizer's chat template with the opening of the assistant's turn.

        A tokenizer without a template (a base model, the mini tokenizer) gets the messages' contents, joined by blank
        lines and nothing else: no role names that the model has never seen.
        """
        if self.tokenizer.chat_template is None:
            return tuple(self.tokenizer.encode(prompt.text))
        messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        template: Any = self.tokenizer
        return tuple(
            template.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
        )

    def count(self, prompt: Prompt) -> int:
        """Length of a prompt, chat template included."""
        return len(self.encode(prompt))

    def check(self, sampling: Sampling) -> None:
        """Refuse a token limit that leaves no position for a prompt."""
        if sampling.max_tokens >= self.positions:
            raise UnsupportedOption(
                f"max_tokens={sampling.max_tokens} leaves no room for a prompt: {self.name} has {self.positions} "
                "positions; lower max_tokens"
            )

    @property
    def positions(self) -> int:
        """Most tokens of a prompt and its response together."""
        return int(getattr(self.network.config, "max_position_embeddings", None) or 2**31)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer a batch, in input order.

        Equal prompts share one prefill. Prompts go in passes of similar lengths, which are a function of the batch's
        content: not of the order of its requests, nor of what was asked before.

        One request that cannot be answered fails the whole batch, before anything is computed; so methods bound their
        prompts before they ask (`harness.prompts.Prompts.fit`), where only the episode at fault is lost.

        Raises:
            UnsupportedOption: see `check`.
            ValueError: an empty prompt, or one that leaves fewer positions than its token limit.
        """
        encoded: dict[Any, tuple[int, ...]] = {}
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for index, request in enumerate(requests):
            messages = request.prompt.messages
            if messages not in encoded:
                encoded[messages] = self.encode(request.prompt)
            self._check_length(request, len(encoded[messages]))
            by_prompt.setdefault(encoded[messages], []).append(index)
        prompts = sorted(by_prompt, key=lambda ids: (len(ids), ids))
        chunks = length_chunks(
            [len(prompt) for prompt in prompts],
            counts=[len(by_prompt[prompt]) for prompt in prompts],
            max_tokens=self.batch_tokens,
            max_padding=self.max_padding,
        )
        completions: list[Completion | None] = [None] * len(requests)
        for chunk in chunks:
            asked = [sorted(by_prompt[prompts[i]], key=lambda j: _order(requests[j].sampling)) for i in chunk]
            rows = [index for group in asked for index in group]
            samplings = [requests[index].sampling for index in rows]
            sampled = decode(
                self.network,
                Chunk(
                    prompts=[prompts[i] for i in chunk],
                    owners=[owner for owner, group in enumerate(asked) for _ in group],
                    samplers=Samplers.of(samplings, self.device),
                    limits=[sampling.max_tokens for sampling in samplings],
                ),
                self._stops,
                self.counters,
            )
            first = {group[0] for group in asked}
            answers = iter(sampled)
            for i, group in zip(chunk, asked, strict=True):
                for index in group:
                    completions[index] = self._completion(prompts[i], next(answers), cached=index not in first)
        return [completion for completion in completions if completion is not None]

    def _check_length(self, request: Request, length: int) -> None:
        self.check(request.sampling)
        if length == 0:
            raise ValueError(f"request {request.key}: the prompt is empty")
        if length + request.sampling.max_tokens > self.positions:
            raise ValueError(
                f"request {request.key}: a prompt of {length} tokens and max_tokens={request.sampling.max_tokens} "
                f"exceed the {self.positions} positions of {self.name}; shorten the history or the token limit"
            )

    def _completion(self, prompt: tuple[int, ...], sampled: Sampled, *, cached: bool) -> Completion:
        visible = sampled.ids[:-1] if sampled.finish_reason == "stop" else sampled.ids
        return Completion(
            text=self.tokenizer.decode(list(visible), skip_special_tokens=True),
            token_ids=sampled.ids,
            logprobs=sampled.logprobs,
            finish_reason=sampled.finish_reason,
            prompt_ids=prompt,
            usage=Usage(
                calls=1,
                tokens_in=len(prompt),
                tokens_out=len(sampled.ids),
                tokens_cached=len(prompt) if cached else 0,
            ),
            version=self.version,
        )

    # Training

    def logprobs(
        self, rows: Sequence[TrainingRow], *, temperature: float, batch_tokens: int = 16384
    ) -> list[np.ndarray]:
        """Log-probability of every response token, float32 arrays of the responses' lengths, in input order."""

        def score(chosen: Sequence[TrainingRow]) -> torch.Tensor:
            logits, ids, where = response_logits(self.network, chosen, self.device)
            return token_logprobs(logits, ids, temperature)[where]

        return by_chunks(score, rows, batch_tokens=batch_tokens, max_padding=self.max_padding)

    def update(self, loss: Loss, micro_batches: Sequence[MicroBatch], *, temperature: float) -> UpdateStats:
        """One optimiser step on the sum of the micro-batches' losses; see the contract and `TrainedNetwork.step`.

        Outside a micro-batch's mask, log-probabilities and entropies are 0. A loss whose attribute `entropy_gradient`
        is False is given entropies as constants.
        """
        wanted = getattr(loss, "entropy_gradient", True)

        def of(batch: MicroBatch) -> LossOutput:
            return loss(*scores(self.network, batch, temperature, self.device, entropy_gradient=wanted), batch)

        return self.step(of, micro_batches)

    # Copies

    def frozen_copy(self) -> TransformersModel:
        """A copy of the weights that samples and scores but does not train."""
        twin = copy.copy(self)
        twin.network = copy.deepcopy(self.network).requires_grad_(False)
        twin.counters = Counters()
        twin._optimizer, twin._config, twin._frozen = None, None, True
        return twin

    def with_value_head(self) -> TransformersValue:
        """A critic on a copy of the weights as they are now; memory for a second network and its optimiser."""
        return TransformersValue(self.network, name=f"{self.name} (critic)", max_padding=self.max_padding)


def _order(sampling: Sampling) -> tuple[float, ...]:
    return (sampling.seed, sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens)


def open_transformers(target: str, context: ModelContext) -> TransformersModel:
    """The model that `transformers:TARGET` names, a Hugging Face id or a path.

    Raises:
        InputError: no target, or nothing to load there.
    """
    if not target:
        raise InputError("transformers: needs an id or a path, as in transformers:Qwen/Qwen2.5-1.5B-Instruct")
    return TransformersModel(target, dtype=context.dtype, device=context.device)
