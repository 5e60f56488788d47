"""What a network needs before it answers: a tokenizer, a device, a precision the device has, stop ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from harness.errors import InputError
from harness.model import UnsupportedOption

DTYPES: Mapping[str, torch.dtype] = {
    "auto": torch.float32,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}

_NATIVE = {"bfloat16": ("avx512_bf16", "amx_bf16"), "float16": ("avx512_fp16", "amx_fp16")}


class Tokenizer(Protocol):
    """What is needed of a tokenizer; those of `transformers` have it, and `harness.models.mini.WordTokenizer`."""

    @property
    def eos_token_id(self) -> int | None: ...

    @property
    def chat_template(self) -> Any: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


def device_of(name: str) -> torch.device:
    """The device that an option means: "auto" is CUDA where there is one, else the CPU.

    Raises:
        InputError: no device of that name, or not on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # what torch raises when it was built without CUDA is the latter
        raise InputError(
            f'device "{name}" cannot be used here ({_first_line(error)}); use device=auto, cpu, cuda or cuda:N'
        ) from error
    return device


def pretrained(target: str | Path, tokenizer: Tokenizer | None, precision: torch.dtype) -> tuple[Any, Any]:
    """A network and its tokenizer, by Hugging Face id or path.

    Args:
        target: id or path.
        tokenizer: to use; the one that lies beside the weights by default.
        precision: of the weights.

    Raises:
        InputError: there is no such model, it cannot be fetched, or it is no causal language model.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        beside: Any = AutoTokenizer.from_pretrained(target) if tokenizer is None else tokenizer
        return AutoModelForCausalLM.from_pretrained(target, dtype=precision), beside
    except (OSError, ValueError) as error:
        raise InputError(
            f'model "transformers:{target}" cannot be loaded ({_first_line(error)}); give the folder of a causal '
            "language model (config.json, weights, tokenizer) or a Hugging Face id that can be reached from here"
        ) from error


def _first_line(error: BaseException) -> str:
    """The first line of what an error says: those of torch and transformers run to paragraphs."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def precision_of(dtype: str, device: torch.device) -> torch.dtype:
    """The precision that an option means: "auto" is float32, on every device, since weights may be trained.

    Raises:
        ValueError: not a precision we know.
        UnsupportedOption: half precision on a CPU without instructions for it.
    """
    if dtype not in DTYPES:
        raise ValueError(f"unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}")
    if device.type != "cpu" or dtype not in _NATIVE:
        return DTYPES[dtype]
    # Older torch does not tell: then no instruction is assumed.
    abilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if not any(abilities.get(ability) for ability in _NATIVE[dtype]):
        raise UnsupportedOption(
            f"this CPU has no {dtype} instructions and would emulate them (matrix products about 80 times slower than "
            "float32 where it was measured); use dtype=float32"
        )
    return DTYPES[dtype]


def stop_ids(network: Any, tokenizer: Tokenizer) -> list[int]:
    """The tokenizer's end of sequence and those of the network's generation settings (chat models have two)."""
    configured = getattr(getattr(network, "generation_config", None), "eos_token_id", None)
    stops: set[int] = {configured} if isinstance(configured, int) else set(configured or ())
    if tokenizer.eos_token_id is not None:
        stops.add(tokenizer.eos_token_id)
    return sorted(stops)
