"""The embedded policy: a Qwen2 network of at most 0.4 million parameters over a closed vocabulary of words.

It is architecture and training code of the papers' models at a size that a laptop trains in minutes. Nothing is
downloaded; a policy is a folder of four small files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from safetensors.torch import load_model, save_model
from transformers import Qwen2Config, Qwen2ForCausalLM

from harness.errors import InputError
from harness.model import UnsupportedOption
from harness.models.transformers import TransformersModel
from harness.policies import policy_folder

if TYPE_CHECKING:
    from harness.model import ModelContext

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
SPECIALS = (PAD, EOS, UNK)
MAX_PARAMETERS = 400_000

WEIGHTS, VOCABULARY, CONFIG, CARD = "policy.safetensors", "vocab.json", "config.json", "card.md"
MANIFEST = "manifest.json"


class WordTokenizer:
    """Words separated by white space, one id each, over a closed vocabulary; tags such as `<action>` are words too.

    A word of the text that spells a special token becomes `<unk>`: text from a page cannot end a sequence.

    Args:
        vocabulary: words by id; the specials `<pad>`, `<eos>`, `<unk>` come first.

    Raises:
        ValueError: specials that are not at the start, words that repeat or contain white space.
    """

    chat_template: ClassVar[None] = None
    pad_token_id: ClassVar[int] = 0
    eos_token_id: ClassVar[int] = 1
    unk_token_id: ClassVar[int] = 2

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        if self.vocabulary[: len(SPECIALS)] != SPECIALS:
            raise ValueError(f"a vocabulary begins with {', '.join(SPECIALS)}; this one with {self.vocabulary[:3]}")
        self._ids = {word: index for index, word in enumerate(self.vocabulary)}
        if len(self._ids) != len(self.vocabulary):
            twice = sorted({word for word in self.vocabulary if self.vocabulary.count(word) > 1})
            raise ValueError(f"words that stand twice in the vocabulary: {', '.join(twice)}")
        for word in self.vocabulary:
            if word.split() != [word]:
                raise ValueError(f"a word is not empty and has no white space, got {word!r}")
        for special in SPECIALS:
            del self._ids[special]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        """The vocabulary of all words of some texts, in alphabetical order."""
        words = {word for text in texts for word in text.split()}
        return cls((*SPECIALS, *sorted(words - set(SPECIALS))))

    def __len__(self) -> int:
        return len(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """Ids of the words of a text; words outside the vocabulary become `<unk>`."""
        return [self._ids.get(word, self.unk_token_id) for word in text.split()]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Words joined by single blanks; `<unk>` is always shown, `<pad>` and `<eos>` on request."""
        hidden = {self.pad_token_id, self.eos_token_id} if skip_special_tokens else set()
        return " ".join(self.vocabulary[index] for index in token_ids if index not in hidden)

    def unknown(self, text: str) -> list[str]:
        """Words of a text that the vocabulary lacks, in order."""
        return [word for word in text.split() if word not in self._ids]

    def save(self, path: Path) -> None:
        """Write the vocabulary as a JSON list."""
        path.write_text(json.dumps(self.vocabulary, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(json.loads(path.read_text(encoding="utf-8")))


class MiniConfig(BaseModel):
    """Shape of a mini policy; embeddings are tied, vocabulary and parameters follow from the tokenizer."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hidden: int = Field(96, ge=8, description="width of the residual stream")
    layers: int = Field(3, ge=1)
    heads: int = Field(4, ge=1, description="attention heads; hidden / heads is even, as rotary positions need")
    kv_heads: int = Field(2, ge=1, description="key-value heads; they divide the heads")
    ff: int = Field(256, ge=8, description="width of the gated feed-forward layer")
    max_positions: int = Field(256, ge=16, description="most tokens of a prompt and its response")
    rope_theta: float = Field(10_000.0, gt=1)

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden / heads must be an even number, got {self.hidden} / {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads, got {self.kv_heads} and {self.heads}")
        return self

    def parameters(self, vocabulary: int) -> int:
        """Number of weights with a vocabulary of that size."""
        h, kv = self.hidden, self.hidden // self.heads * self.kv_heads
        attention = 2 * h * h + 2 * h * kv + h + 2 * kv
        return vocabulary * h + self.layers * (attention + 3 * h * self.ff + 2 * h) + h


def build_mini(tokenizer: WordTokenizer, config: MiniConfig, seed: int) -> Qwen2ForCausalLM:
    """A fresh network, a function of its arguments; the global generator is left as it was.

    Raises:
        ValueError: more than 0.4 million parameters.
    """
    count = config.parameters(len(tokenizer))
    if count > MAX_PARAMETERS:
        raise ValueError(
            f"{count:,} parameters with a vocabulary of {len(tokenizer)} words; a mini policy has at most "
            f"{MAX_PARAMETERS:,}: make hidden, layers, ff or the vocabulary smaller"
        )
    build: Any = Qwen2ForCausalLM
    architecture: Any = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        intermediate_size=config.ff,
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network: Qwen2ForCausalLM = build(architecture)
    return network


class MiniModel(TransformersModel):
    """A mini policy: built fresh from a seed, or opened from a folder.

    A folder holds `policy.safetensors`, `vocab.json`, `config.json`, `card.md` (data, recipe, what it is not for) and
    `manifest.json`: the SHA-256 of the weights (`sha256`) and of the other files (`files`), the number of parameters
    and the recipe.
    """

    backend: ClassVar[str] = "mini"

    def __init__(
        self,
        network: Qwen2ForCausalLM,
        tokenizer: WordTokenizer,
        config: MiniConfig,
        *,
        name: str = "mini",
        device: str = "cpu",
    ) -> None:
        super().__init__(network, tokenizer, name=name, device=device)
        self.config = config
        self.words = tokenizer
        self.vocabulary = frozenset(tokenizer.vocabulary).difference(SPECIALS)

    @classmethod
    def fresh(
        cls, tokenizer: WordTokenizer, config: MiniConfig | None = None, *, seed: int, name: str = "mini"
    ) -> Self:
        """An untaught policy."""
        shape = config or MiniConfig()
        return cls(build_mini(tokenizer, shape, seed), tokenizer, shape, name=name)

    @classmethod
    def open(cls, folder: Path, *, name: str = "mini", device: str = "cpu") -> Self:
        """Read a policy folder.

        Args:
            folder: as `export` wrote it.
            name: what a row records.
            device: the CPU by default, also where there is a GPU: passes this small are faster there.

        Raises:
            InputError: a file is missing, or has not the digest that the manifest records.
        """
        _verify(folder)
        tokenizer = WordTokenizer.load(folder / VOCABULARY)
        config = MiniConfig.model_validate_json((folder / CONFIG).read_text(encoding="utf-8"))
        network = build_mini(tokenizer, config, seed=0)
        load_model(network, str(folder / WEIGHTS))
        return cls(network, tokenizer, config, name=name, device=device)

    def export(self, folder: Path, *, card: str, recipe: Mapping[str, Any]) -> None:
        """Write a policy folder that `open` reads.

        Args:
            folder: made where it is missing.
            card: Markdown for people; must not be empty: weights without a card are not shipped.
            recipe: what made the weights, kept in the manifest.

        Raises:
            ValueError: an empty card.
        """
        if not card.strip():
            raise ValueError("a policy needs a card: data, recipe, and what it is not for")
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self.network, str(folder / WEIGHTS))
        self.words.save(folder / VOCABULARY)
        (folder / CONFIG).write_text(self.config.model_dump_json(indent=2) + "\n", encoding="utf-8")
        (folder / CARD).write_text(card.strip() + "\n", encoding="utf-8")
        manifest = {
            "parameters": self.config.parameters(len(self.words)),
            "recipe": dict(recipe),
            "sha256": _sha256(folder / WEIGHTS),
            "files": {file: _sha256(folder / file) for file in (VOCABULARY, CONFIG, CARD)},
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def open_mini(target: str, context: ModelContext) -> MiniModel:
    """The model that `mini` (the shipped policy of the environment) or `mini:FOLDER` names.

    Raises:
        InputError: no policy is shipped for the environment, or the folder is not whole.
    """
    folder = Path(target) if target else policy_folder(context.env)
    if folder is None:
        raise InputError(
            f'there is no shipped mini policy for "{context.env}"; make one with: harness prepare policy {context.env}'
        )
    if context.dtype not in ("auto", "float32"):
        raise UnsupportedOption(
            f"a mini policy is stored and computed in float32, not {context.dtype}; leave dtype out"
        )
    device = "cpu" if context.device == "auto" else context.device
    return MiniModel.open(folder, name=f"mini:{folder.name}" if target else "mini", device=device)


def _verify(folder: Path) -> None:
    for file in (MANIFEST, WEIGHTS, VOCABULARY, CONFIG, CARD):
        if not (folder / file).is_file():
            raise InputError(
                f"no mini policy in {folder}: {file} is missing; make one with: harness prepare policy ENV"
            )
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    for file, expected in {WEIGHTS: manifest["sha256"], **manifest["files"]}.items():
        found = _sha256(folder / file)
        if found != expected:
            raise InputError(
                f"{folder / file} has SHA-256 {found}, its manifest says {expected}; the file was changed or cut: "
                "restore it, or make the policy again with: harness prepare policy ENV"
            )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
