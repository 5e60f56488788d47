"""The model contracts: what can be asked (`Model`) and what can be trained (`TrainableModel`).

A trainer and an engine are two objects joined by `sync`; in process they are one. In-process models answer whole
batches (`generate`), which the batcher of a lane fills (`harness.batching`); remote ones answer `complete` alone.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from harness.types import Completion, Key

if TYPE_CHECKING:
    import numpy as np
    import torch


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked; the back end applies its own chat template.

    Attributes:
        messages: in order.
        kind: what is asked for ("action", "strategy", "judgment"), for transcripts and row kinds.
    """

    messages: tuple[Message, ...]
    kind: str = "action"

    @classmethod
    def user(cls, text: str, *, kind: str = "action") -> Prompt:
        return cls((Message("user", text),), kind=kind)

    @property
    def text(self) -> str:
        return "\n\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a response is sampled.

    Attributes:
        temperature: 0 is greedy.
        top_p: nucleus; 1 switches it off.
        top_k: 0 switches it off.
        max_tokens: token limit of the response, L of StraTA Eq. 11; the end-of-sequence token counts.
        seed: of this request alone; two requests with equal prompt, sampling and seed get equal responses.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 = off), got {self.top_k}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens}")


@dataclass(frozen=True, slots=True)
class Request:
    """One call waiting in a lane; `key` orders a batch and makes its seed."""

    key: Key
    prompt: Prompt
    sampling: Sampling


class UnsupportedOption(ValueError):
    """The back end cannot honour an option; saying so is better than ignoring it."""


TOKENS_PER_WORD = 1.5
"""Tokens that a word of English text and page markup takes, rounded up: an estimate where nobody can count."""


def estimated_tokens(prompt: Prompt) -> int:
    """Length of a prompt for a tokenizer that is not at hand: `TOKENS_PER_WORD` for each of its words."""
    return math.ceil(TOKENS_PER_WORD * len(prompt.text.split()))


class Model(ABC):
    """Something that answers prompts.

    Attributes:
        name: what a row records.
        in_process: True when `generate` takes batches; the lane's batcher is used then.
        vocabulary: the only words that it can read, where that is a closed set; None when it reads any text.
    """

    name: str = "model"
    backend: ClassVar[str] = "model"
    in_process: ClassVar[bool] = True
    vocabulary: frozenset[str] | None = None

    @property
    def deterministic(self) -> bool:
        """Whether equal requests in equal batches give equal responses; a subclass may set it as an attribute."""
        return True

    @property
    def positions(self) -> int | None:
        """Most tokens of a prompt and its response together; None where the engine does not tell."""
        return None

    def count(self, prompt: Prompt) -> int:
        """Length of a prompt in tokens of this model; an estimate where its tokenizer is not at hand."""
        return estimated_tokens(prompt)

    async def complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        """Answer one prompt; a remote back end overrides this, in process it is a batch of one."""
        return self.generate([Request((), prompt, sampling)])[0]

    @abstractmethod
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer a batch, in the order of the requests.

        Raises:
            UnsupportedOption: a sampling option that this back end cannot honour.
            harness.env.InfraError: the engine failed.
        """

    def check(self, sampling: Sampling) -> None:
        """Raise UnsupportedOption for sampling that this back end cannot honour; called before a run starts."""
        return None

    @property
    def digest(self) -> str:
        """Identity of the weights or script as they are now, for states and checkpoints; it changes with training.

        A run's digest does not read it: models are known there by `harness.registry.model_identity`, which loads none.
        """
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]

    def close(self) -> None:
        """Release what the engine holds."""
        return None


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What the opener of a model may need to know: the environment it will play, and the device settings."""

    env: str
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One row as the trainer sees it.

    Attributes:
        prompt_ids: of the prompt.
        ids: of the sampled response; exactly what was sampled, never re-tokenised.
    """

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]


@dataclass(slots=True)
class MicroBatch:
    """Rows that go through the network together.

    Attributes:
        rows: R rows; their responses are padded on the right to T tokens.
        mask: 1 on response tokens, float32, shape [R, T].
        weights: weight of each row's loss, float32, shape [R]; they sum to 1 over the whole mini-batch.
        arrays: what the loss needs, each of shape [R, T] (old log-probabilities, advantages, ...), float32.
    """

    rows: Sequence[TrainingRow]
    mask: torch.Tensor
    weights: torch.Tensor
    arrays: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LossOutput:
    """What a loss returns: the weighted sum to differentiate, and sums to report (added over micro-batches)."""

    loss: torch.Tensor
    metrics: Mapping[str, float] = field(default_factory=dict)


def add_metrics(total: dict[str, float], part: Mapping[str, float]) -> None:
    """Add a part's metrics to a total in place; names that end in "_max" take the larger value."""
    for name, value in part.items():
        if name.endswith("_max"):
            total[name] = max(total.get(name, value), value)
        else:
            total[name] = total.get(name, 0.0) + value


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """One optimiser step: gradient norm before clipping, and its micro-batches' metrics joined by `add_metrics`."""

    grad_norm: float
    loss: float
    metrics: Mapping[str, float]


Loss = Callable[["torch.Tensor", "torch.Tensor", MicroBatch], LossOutput]
"""(log-probabilities [R, T], entropies [R, T], micro-batch) -> LossOutput."""


ValueLoss = Callable[["torch.Tensor", MicroBatch], LossOutput]
"""(values [R, T], micro-batch) -> LossOutput."""


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW with a constant learning rate (StraTA Table 7; betas and eps are torch's defaults)."""

    lr: float = 1e-6
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    max_grad_norm: float = 1.0


class TrainableModel(Model):
    """A model whose weights can be updated in this process.

    `temperature` is the sampling temperature: log-probabilities are those of softmax(logits / temperature), the
    distribution that was sampled from (trl#4159). A truncated one (top-p, top-k) cannot be trained on.
    """

    version: int = 0

    @abstractmethod
    def configure(self, optimizer: OptimizerConfig) -> None:
        """Make a fresh optimiser; the learning rate is constant."""

    @abstractmethod
    def logprobs(
        self, rows: Sequence[TrainingRow], *, temperature: float, batch_tokens: int = 16384
    ) -> list[np.ndarray]:
        """Log-probability of every response token of every row, float32, each of its response's length; no gradient."""

    @abstractmethod
    def update(self, loss: Loss, micro_batches: Sequence[MicroBatch], *, temperature: float) -> UpdateStats:
        """Sum the losses of the micro-batches, differentiate, clip, and take one optimiser step.

        Row weights are fixed for the mini-batch before; nothing is divided here, so that the split into micro-batches
        changes nothing.
        """

    @abstractmethod
    def frozen_copy(self) -> TrainableModel:
        """The weights as they are now, for a reference policy; it answers and scores but does not train."""

    def with_value_head(self) -> ValueModel:
        """A critic that starts from the weights as they are now; it trains apart from them.

        Raises:
            UnsupportedOption: the back end makes none.
        """
        raise UnsupportedOption(
            f"the method trains a critic, and the back end {self.backend!r} makes none; "
            "use --model mini or --model transformers:<id or path>, or a method without a critic (grpo)"
        )

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights, optimiser and version into an existing folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote; sampling and training go on exactly as they would have."""

    def sync(self, version: int) -> None:
        """Make the sampling engine use the weights of `version`; in process they always are."""
        return None


class ValueModel(ABC):
    """A critic: V(s), what the episode will still bring, for the state before each response token (PPO)."""

    version: int = 0

    @abstractmethod
    def configure(self, optimizer: OptimizerConfig) -> None:
        """Make a fresh optimiser; the learning rate is constant."""

    @abstractmethod
    def values(self, rows: Sequence[TrainingRow], *, batch_tokens: int = 16384) -> list[np.ndarray]:
        """Value of the state before every response token of every row, float32, each of its response's length.

        The state before a token is the prompt and the response's earlier tokens. No gradient; in the unit of rewards.
        """

    @abstractmethod
    def update(self, loss: ValueLoss, micro_batches: Sequence[MicroBatch]) -> UpdateStats:
        """Sum the losses of the micro-batches, differentiate, clip, and take one optimiser step.

        As in `TrainableModel.update`, nothing is divided here: the split into micro-batches changes nothing.
        """

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write weights, optimiser and version into an existing folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Read what `save` wrote; training goes on exactly as it would have."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """Identity of the weights as they are now."""


@dataclass(slots=True)
class Kit:
    """The models of a method by role, and its sentence encoder.

    Attributes:
        models: role -> model; "policy" is always there, other roles default to it.
        embedder: sentences -> unit vectors, float64 [n, d]; None where the method needs none.
    """

    models: dict[str, Model]
    embedder: Callable[[Sequence[str]], Any] | None = None

    def model(self, role: str) -> Model:
        """The model that answers for a role; the policy where none was named."""
        return self.models.get(role, self.models["policy"])

    @property
    def policy(self) -> Model:
        return self.models["policy"]

    @property
    def trainable(self) -> TrainableModel:
        """The policy as something to train.

        Raises:
            UnsupportedOption: the policy's back end cannot train.
        """
        policy = self.models["policy"]
        if not isinstance(policy, TrainableModel):
            raise cannot_train(policy.backend)
        return policy


def cannot_train(backend: str) -> UnsupportedOption:
    """The error for a method that trains its policy on a back end that only answers."""
    return UnsupportedOption(
        f"the method trains its policy, and the back end {backend!r} cannot; "
        "use --model mini or --model transformers:<id or path>, or a method without training (vanilla)"
    )
