"""A network with its optimiser: one step, files, digest. What a policy and a critic have in common."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model

from harness.model import LossOutput, MicroBatch, OptimizerConfig, UnsupportedOption, UpdateStats, add_metrics
from harness.models.scoring import moved


class TrainedNetwork:
    """Weights that AdamW moves; a base for models, which say what their losses read.

    Attributes:
        name: of the model, for messages.
        network: a torch module.
        device: where it computes.
        version: counts its updates.
    """

    name: str
    network: Any
    device: torch.device
    version: int = 0

    _optimizer: torch.optim.AdamW | None = None
    _config: OptimizerConfig | None = None
    _frozen: bool = False

    def configure(self, optimizer: OptimizerConfig) -> None:
        """Make a fresh AdamW over all weights that require a gradient.

        Raises:
            UnsupportedOption: weights in half precision, or a frozen copy.
        """
        if self._frozen:
            raise UnsupportedOption(f"{self.name} is a frozen copy; configure the model it was copied from")
        dtype = next(self.network.parameters()).dtype
        if dtype != torch.float32:
            raise UnsupportedOption(
                f"training in {dtype} loses steps as small as the learning rate {optimizer.lr}; use dtype=float32"
            )
        self._config = optimizer
        self._optimizer = torch.optim.AdamW(
            [parameter for parameter in self.network.parameters() if parameter.requires_grad],
            lr=optimizer.lr,
            betas=optimizer.betas,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            fused=True,
        )

    def set_lr(self, lr: float) -> None:
        """Change the learning rate and keep the optimiser's moments, for schedules."""
        for group in self._trained().param_groups:
            group["lr"] = lr

    def step(self, loss: Callable[[MicroBatch], LossOutput], micro_batches: Sequence[MicroBatch]) -> UpdateStats:
        """One optimiser step on the sum of the micro-batches' losses, with the gradient clipped.

        Args:
            loss: of one micro-batch, which lies on the network's device.
            micro_batches: of one mini-batch.

        Raises:
            FloatingPointError: a loss or the gradient is not finite; the weights are as before.
            RuntimeError: no optimiser (call `configure`), or a frozen copy.
            ValueError: no micro-batches.
        """
        optimizer = self._trained()
        config = self._config
        assert config is not None, "configure sets both"
        if not micro_batches:
            raise ValueError("an update needs at least one micro-batch")
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        metrics: dict[str, float] = {}
        for index, batch in enumerate(micro_batches):
            output = loss(moved(batch, self.device))
            value = float(output.loss.detach())
            if not math.isfinite(value):
                raise FloatingPointError(
                    f"the loss of micro-batch {index} of {len(micro_batches)} is {value} at version {self.version}; "
                    "no step was taken; look at the arrays that it brought (advantages, old log-probabilities, returns)"
                )
            output.loss.backward()  # type: ignore[no-untyped-call]
            total += value
            add_metrics(metrics, output.metrics)
        parameters = optimizer.param_groups[0]["params"]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm))
        if not math.isfinite(norm):
            optimizer.zero_grad(set_to_none=True)
            raise FloatingPointError(
                f"the gradient norm is {norm} at version {self.version}, with a loss of {total}; no step was taken; "
                "lower the learning rate or look for extreme importance ratios"
            )
        optimizer.step()
        self.version += 1
        return UpdateStats(grad_norm=norm, loss=total, metrics=metrics)

    def _trained(self) -> torch.optim.AdamW:
        if self._frozen:
            raise RuntimeError(f"{self.name} is a frozen copy and does not train")
        if self._optimizer is None:
            raise RuntimeError(f"{self.name} has no optimiser yet; call configure(OptimizerConfig(...)) first")
        return self._optimizer

    def save(self, folder: Path) -> None:
        """Write `weights.safetensors`, `optimizer.pt` (when there is an optimiser) and `state.json`."""
        save_model(self.network, str(folder / "weights.safetensors"))
        config = dataclasses.asdict(self._config) if self._config else None
        if self._optimizer is not None:
            torch.save(self._optimizer.state_dict(), folder / "optimizer.pt")
        (folder / "state.json").write_text(json.dumps({"version": self.version, "optimizer": config}) + "\n")

    def load(self, folder: Path) -> None:
        """Read what `save` wrote; sampling and training go on bit for bit on the same machine and thread count."""
        state = json.loads((folder / "state.json").read_text())
        load_model(self.network, str(folder / "weights.safetensors"), device=str(self.device))
        self.version = int(state["version"])
        self._optimizer, self._config = None, None
        if state["optimizer"] is not None and not self._frozen:
            saved = state["optimizer"]
            self.configure(OptimizerConfig(**{**saved, "betas": tuple(saved["betas"])}))
            moments = torch.load(folder / "optimizer.pt", map_location=self.device, weights_only=True)
            self._trained().load_state_dict(moments)

    @property
    def digest(self) -> str:
        """SHA-256 over the names, shapes and bytes of all weights, first 16 hexadecimal digits."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name}:{tensor.dtype}:{list(tensor.shape)};".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]
