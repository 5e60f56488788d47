"""Sampling of one token per request, for a whole batch at once.

A request's randomness is one uniform number per step, a hash of (its seed, the step), and the token is the one whose
interval of the cumulative distribution holds that number. So what a request gets depends on nothing but its own
logits, seed and options: not on its neighbours, its place in the batch, or how long others run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from harness.model import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: npt.NDArray[np.uint64], step: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), one per seed, for the token at `step`.

    Counter-based: the splitmix64 finaliser (Steele, Lea, Flood, OOPSLA 2014) over the seed, then over the sum of that
    and the step's multiple of the golden ratio. Equal in every process and for any order of the seeds.

    Args:
        seeds: uint64, shape [n].
        step: 0 for the first token of a response.

    Returns:
        float64, shape [n], multiples of 2**-53.
    """
    counter = np.uint64((step + 1) * int(_GOLDEN) & 0xFFFFFFFFFFFFFFFF)
    bits = _mix(_mix(seeds + _GOLDEN) + counter)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@dataclass(frozen=True, slots=True)
class Samplers:
    """The sampling options of a batch as arrays, one entry per row.

    Attributes:
        seeds: uint64, shape [n], on the CPU.
        temperature: shape [n]; 1 where a row is greedy.
        greedy: bool, shape [n].
        top_p: shape [n].
        top_k: int64, shape [n]; 0 is off.
        truncates: whether any sampled row is cut by top-p or top-k.
        scales: whether any temperature differs from 1.
    """

    seeds: npt.NDArray[np.uint64]
    temperature: torch.Tensor
    greedy: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    truncates: bool
    scales: bool

    @classmethod
    def of(cls, samplings: Sequence[Sampling], device: torch.device) -> Samplers:
        """Stack the options of a batch's rows."""
        seeds = np.array([sampling.seed & 0xFFFFFFFFFFFFFFFF for sampling in samplings], dtype=np.uint64)
        temperature = [sampling.temperature or 1.0 for sampling in samplings]
        return cls(
            seeds=seeds,
            temperature=torch.tensor(temperature, device=device),
            greedy=torch.tensor([sampling.temperature == 0 for sampling in samplings], device=device),
            top_p=torch.tensor([sampling.top_p for sampling in samplings], device=device),
            top_k=torch.tensor([sampling.top_k for sampling in samplings], device=device),
            truncates=any(s.temperature > 0 and (s.top_p < 1 or s.top_k > 0) for s in samplings),
            scales=any(value != 1.0 for value in temperature),
        )

    def select(self, rows: torch.Tensor) -> Samplers:
        """The options of some rows, in the order given."""
        return Samplers(
            seeds=self.seeds[rows.cpu().numpy()],
            temperature=self.temperature[rows],
            greedy=self.greedy[rows],
            top_p=self.top_p[rows],
            top_k=self.top_k[rows],
            truncates=self.truncates,
            scales=self.scales,
        )


def draw(logits: torch.Tensor, samplers: Samplers, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample the token at `step` of every row.

    Greedy rows take the most likely token (the lowest id of equals); theirs is a point mass, so its log-probability
    is 0.

    Args:
        logits: shape [n, V].
        samplers: options of the n rows.
        step: 0 for the first token of a response.

    Returns:
        ids (int64) and their log-probabilities (float32) under the distribution sampled from: after temperature,
        top-k and top-p; both of shape [n].
    """
    scores = logits.float()
    if samplers.scales:
        scores = scores / samplers.temperature[:, None]
    if samplers.truncates:
        scores = scores.masked_fill(~kept(scores, samplers.top_p, samplers.top_k), -torch.inf)
    logprobs = torch.log_softmax(scores, dim=-1)
    mass = logprobs.double().exp().cumsum(dim=-1)
    points = torch.from_numpy(uniforms(samplers.seeds, step)).to(mass.device)[:, None] * mass[:, -1:]
    # The first id whose cumulative mass exceeds the point; an id without mass can never be it.
    ids = torch.searchsorted(mass, points, right=True).clamp_(max=mass.shape[-1] - 1)[:, 0]
    ids = torch.where(samplers.greedy, logits.argmax(dim=-1), ids)
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids, chosen.masked_fill(samplers.greedy, 0.0)


def kept(scores: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Which tokens remain after top-k and then top-p (nucleus) truncation.

    Top-p works on the distribution that top-k left, renormalised: a token stays while the mass of the likelier ones
    is below top_p, so the likeliest always does. Among equal scores the lowest ids stay.

    Args:
        scores: logits over temperature, shape [n, V].
        top_p: shape [n], 1 is off.
        top_k: int64, shape [n], 0 is off.

    Returns:
        bool, shape [n, V].
    """
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(scores.shape[-1], device=scores.device)
    inside = (top_k[:, None] == 0) | (ranks < top_k[:, None])
    probabilities = ordered.masked_fill(~inside, -torch.inf).softmax(dim=-1)
    before = probabilities.double().cumsum(dim=-1) - probabilities
    inside &= (top_p[:, None] == 1) | (before < top_p[:, None]) | (ranks == 0)
    return torch.zeros_like(inside).scatter_(1, order, inside)
