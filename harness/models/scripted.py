"""A model that answers from a script: for tests of everything that asks a model."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from harness.env import InfraError
from harness.errors import InputError
from harness.model import Model, Prompt, Request
from harness.types import Completion, Usage

if TYPE_CHECKING:
    from harness.model import ModelContext

Reply = str | InfraError
"""What a script answers with; an InfraError is raised, as if the engine had failed."""

EOS_ID = 1
_FIRST_WORD, _WORDS = 3, 2**31 - 3


class ScriptedModel(Model):
    """Replies decided by a script. Deterministic, and not trainable.

    Tokens are words separated by white space, ids are hashes of the words, log-probabilities are 0 (the script was
    certain). A token limit cuts a reply as it would cut a sampled one.

    Args:
        replies: one of
            a function (prompt text, sampling seed) -> reply, which may raise InfraError;
            a sequence, one reply after the other in the order of the calls, batches in the order of their requests;
            a mapping from a part of the prompt to the reply: the first key, in the mapping's order, that the prompt
            contains.
        name: what a row records.
    """

    backend: ClassVar[str] = "scripted"

    def __init__(
        self,
        replies: Callable[[str, int], Reply] | Sequence[Reply] | Mapping[str, Reply],
        *,
        name: str = "scripted",
    ) -> None:
        if isinstance(replies, str):
            raise TypeError(f"a script is a function, a list or a mapping, got the text {replies!r}; pass [text]")
        self.name = name
        self.prompts: list[str] = []
        self._replies = replies

    def count(self, prompt: Prompt) -> int:
        """Words of a prompt: they are its tokens."""
        return len(prompt.text.split())

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer a batch, in order; every prompt is kept in `prompts`.

        Raises:
            InfraError: where the script says so; the whole batch fails, as an engine would.
            LookupError: the script has no reply.
        """
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Completion:
        text = request.prompt.text
        self.prompts.append(text)
        reply = self._reply(text, request.sampling.seed)
        if isinstance(reply, InfraError):
            raise reply
        limit = request.sampling.max_tokens
        words = reply.split()
        ended = len(words) < limit
        ids = (*map(word_id, words), EOS_ID) if ended else tuple(map(word_id, words[:limit]))
        prompt_ids = tuple(map(word_id, text.split()))
        return Completion(
            text=reply if ended else " ".join(words[:limit]),
            token_ids=ids,
            logprobs=(0.0,) * len(ids),
            finish_reason="stop" if ended else "length",
            prompt_ids=prompt_ids,
            usage=Usage(calls=1, tokens_in=len(prompt_ids), tokens_out=len(ids)),
        )

    def _reply(self, text: str, seed: int) -> Reply:
        script = self._replies
        if callable(script):
            return script(text, seed)
        if isinstance(script, Mapping):
            for part, reply in script.items():
                if part in text:
                    return reply
            raise LookupError(f"{self.name}: no key of the script ({', '.join(map(repr, script))}) is in {text!r}")
        call = len(self.prompts) - 1
        if call >= len(script):
            raise LookupError(f"{self.name}: call {call + 1}, but the script has {len(script)} replies")
        return script[call]

    @property
    def digest(self) -> str:
        """Of the name and, where the script is no function, its replies."""
        script = "" if callable(self._replies) else repr(self._replies)
        return hashlib.sha256(f"{self.name}:{script}".encode()).hexdigest()[:16]


def word_id(word: str) -> int:
    """A stable id for a word, clear of the ids of special tokens."""
    return _FIRST_WORD + zlib.crc32(word.encode()) % _WORDS


def open_scripted(target: str, context: ModelContext) -> ScriptedModel:
    """The model that `scripted:TEXT` names: it answers every prompt with the text.

    Raises:
        InputError: no text.
    """
    if not target:
        raise InputError(
            "scripted: needs the text that it answers with, as in scripted:'<action> search mug </action>'"
        )
    return ScriptedModel(lambda prompt, seed: target, name=f"scripted:{target}")
