"""The peer: the usual rollout loop over `transformers.generate`, as lean as its design allows.

It does what verl-agent's `vanilla_multi_turn_loop` does: every step generates for all episodes in one batch, the
finished ones included, until the last has ended. Prompts are padded on the left: to a fixed `max_prompt_length` in
verl-agent, to the longest prompt of the batch here, which is kinder to it. It has a key-value cache, stops as soon as
every row has ended, and neither encodes nor decodes again what finished episodes say. It is not asked for
log-probabilities; the harness's loop records them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from transformers import GenerationConfig

from harness.episode import Episode
from harness.model import Prompt, Sampling
from harness.models.decoding import Counters, left_padded
from harness.models.loading import stop_ids
from harness.models.transformers import TransformersModel
from harness.prompts import parse_action
from harness.types import Trajectory


class LockStep:
    """All episodes in one padded batch, step by step, until the last one ends.

    Args:
        model: whose network generates.
        prompt: what an episode asks now.
        sampling: of every response; its seed is not used, torch's own generator draws.

    Attributes:
        tokens: computed (padding and finished rows included) and used (of unfinished episodes).
        replies: responses to unfinished episodes.
        response_tokens: sampled tokens of these, the end of sequence included.
    """

    def __init__(self, model: TransformersModel, prompt: Callable[[Episode], Prompt], sampling: Sampling) -> None:
        self.model, self.prompt = model, prompt
        self.tokens, self.replies, self.response_tokens = Counters(), 0, 0
        stops = stop_ids(model.network, model.tokenizer)
        self._stops = torch.tensor(stops, device=model.device)
        # Named in full: what is left out is filled up from the weights' own generation settings.
        self._generation = GenerationConfig(
            do_sample=sampling.temperature > 0,
            temperature=sampling.temperature or 1.0,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            repetition_penalty=1.0,
            max_new_tokens=sampling.max_tokens,
            eos_token_id=stops,
            pad_token_id=0,
        )

    async def play(self, episodes: Sequence[Episode]) -> list[Trajectory]:
        """Play all episodes to their end."""
        prompts: list[Sequence[int]] = [()] * len(episodes)
        while live := [i for i, episode in enumerate(episodes) if not episode.over]:
            for i in live:
                prompts[i] = self.model.encode(self.prompt(episodes[i]))
            for i, reply in zip(live, self._replies(prompts, live), strict=True):
                await episodes[i].step(parse_action(reply))
        return [await episode.close() for episode in episodes]

    @torch.inference_mode()
    def _replies(self, prompts: Sequence[Sequence[int]], live: Sequence[int]) -> list[str]:
        """Generate for all rows; texts of the live ones."""
        ids, mask, _ = left_padded(prompts, self.model.device)
        width = ids.shape[1]
        output = self.model.network.generate(
            input_ids=ids, attention_mask=mask, generation_config=self._generation
        )[:, width:]
        stopped = torch.isin(output, self._stops)
        # The first stop token counts as sampled; rows without one were cut at the limit.
        bodies = torch.where(stopped.any(dim=1), stopped.int().argmax(dim=1), output.shape[1])[live].tolist()
        lengths = [min(body + 1, output.shape[1]) for body in bodies]
        self.tokens.prefill_computed += ids.numel()
        self.tokens.prefill_used += sum(len(prompts[i]) for i in live)
        self.tokens.decode_computed += len(prompts) * (output.shape[1] - 1)
        self.tokens.decode_used += sum(lengths) - len(live)
        self.replies += len(live)
        self.response_tokens += sum(lengths)
        return [
            self.model.tokenizer.decode(row[:body], skip_special_tokens=True)
            for row, body in zip(output[live].tolist(), bodies, strict=True)
        ]
