"""What a seed keeps of its training: checkpoints written atomically, and the learning curve beside them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import InputError, RunError
from harness.method import Method


class SeedFolder:
    """`checkpoints/seed-N/`: `iteration-K/` (weights, optimiser, state), `latest` and `curve.jsonl`.

    No generator state is kept: every seed is derived from (run, iteration, ...), so the iteration is all that the
    order of data and the sampling depend on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def curve(self) -> Path:
        return self.path / "curve.jsonl"

    def latest(self) -> int:
        """The last iteration with a checkpoint; 0 when there is none."""
        pointer = self.path / "latest"
        return int(pointer.read_text()) if pointer.is_file() else 0

    def restore(self, method: Method) -> int:
        """Load the last checkpoint into a method, cut the curve back to it, and return its iteration.

        Raises:
            InputError: the checkpoint is damaged.
        """
        iteration = self.latest()
        if iteration:
            self.load(method, iteration)
        if self.curve.is_file():
            kept = [line for line in read_curve(self.curve) if line["iteration"] <= iteration]
            _replace(self.curve, "".join(json.dumps(line) + "\n" for line in kept))
        return iteration

    def has(self, iteration: int) -> bool:
        """Whether the checkpoint of an iteration is still there."""
        return (self.path / f"iteration-{iteration}").is_dir()

    def load(self, method: Method, iteration: int) -> None:
        """Load the checkpoint of an iteration into a method.

        Raises:
            InputError: the checkpoint is damaged.
        """
        folder = self.path / f"iteration-{iteration}"
        try:
            method.load(folder)
        except Exception as error:  # safetensors, torch and JSON each have errors of their own
            raise InputError(
                f"the checkpoint {folder} cannot be read ({error}); delete {self.path} to train this seed anew"
            ) from error

    def save(self, method: Method, iteration: int, *, keep: Collection[int] = ()) -> None:
        """Write a checkpoint: a folder of its own, renamed when it is complete, then the pointer; older ones go.

        Args:
            method: what is saved.
            iteration: after which.
            keep: older iterations whose checkpoints stay.

        Raises:
            RunError: the disk is full or refused it; the last checkpoint is as it was.
        """
        folder = self.path / f"iteration-{iteration}"
        temporary = self.path / f".iteration-{iteration}.{os.getpid()}"
        with _told_as_run_error(folder):
            self.path.mkdir(parents=True, exist_ok=True)
            for left_behind in self.path.glob(".iteration-*"):  # by a writer that was killed
                shutil.rmtree(left_behind)
            temporary.mkdir()
            method.save(temporary)
            for path in temporary.rglob("*"):
                _sync(path)
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
            _replace(self.path / "latest", str(iteration))
            kept = {folder, *(self.path / f"iteration-{other}" for other in keep)}
            for other in self.path.glob("iteration-*"):
                if other not in kept:
                    shutil.rmtree(other)

    def keep_batch(self, iteration: int, batch: Sequence[Any]) -> Path:
        """Write the rows that a training step diverged on, one JSON line each, and return the file.

        Raises:
            RunError: the disk is full or refused it.
        """
        path = self.path / f"diverged-iteration-{iteration}.jsonl"
        with _told_as_run_error(path):
            self.path.mkdir(parents=True, exist_ok=True)
            _replace(path, "".join(json.dumps(row) + "\n" for row in batch))
        return path

    def append(self, iteration: int, metrics: Mapping[str, float], seconds: float) -> None:
        """Add one iteration to the learning curve.

        Raises:
            RunError: the disk is full or refused it.
        """
        with _told_as_run_error(self.curve):
            self.path.mkdir(parents=True, exist_ok=True)
            with self.curve.open("a") as file:
                file.write(json.dumps({"iteration": iteration, **metrics, "seconds": seconds}) + "\n")


def read_curve(path: Path) -> list[dict[str, Any]]:
    """Lines of a learning curve; a last line that a killed writer cut is left out."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()]


@contextmanager
def _told_as_run_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(
            f"could not write {path}: {error.strerror or error}; free some space and run the same command again"
        ) from error


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    _sync(temporary)
    temporary.replace(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
