"""Checkpoints and learning curves: whole or not there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.checkpoint import SeedFolder, read_curve
from harness.errors import InputError, RunError
from harness.method import Method
from tests.toys import ToyEnv, ToyLearner


def learner(wins: int = 0) -> ToyLearner:
    made = ToyLearner(ToyLearner.Config(), spec=ToyEnv.spec, view="compact", seed=0)
    made.wins = wins
    return made


@pytest.fixture
def folder(tmp_path: Path) -> SeedFolder:
    return SeedFolder(tmp_path / "seed-0")


def names(folder: SeedFolder) -> list[str]:
    return sorted(path.name for path in folder.path.iterdir())


def test_what_was_saved_comes_back(folder):
    folder.append(1, {"success": 0.5}, 2.0)
    folder.save(learner(7), 1)
    method = learner()
    assert SeedFolder(folder.path).restore(method) == 1
    assert method.wins == 7
    assert read_curve(folder.curve) == [{"iteration": 1, "success": 0.5, "seconds": 2.0}]


def test_nothing_saved_is_iteration_0(folder):
    assert (folder.latest(), folder.restore(learner())) == (0, 0)


def test_older_checkpoints_go_unless_they_are_kept(folder):
    for iteration in (1, 2, 3):
        folder.save(learner(iteration), iteration, keep={2})
    assert names(folder) == ["iteration-2", "iteration-3", "latest"]
    method = learner()
    folder.load(method, 2)
    assert method.wins == 2


def test_the_curve_is_cut_back_to_the_checkpoint(folder):
    for iteration in (1, 2, 3):
        folder.append(iteration, {}, 0.0)
        if iteration == 2:
            folder.save(learner(), 2)
    with folder.curve.open("a") as file:
        file.write('{"iteration": 4, "succ')  # a killed writer
    assert folder.restore(learner()) == 2
    assert [line["iteration"] for line in read_curve(folder.curve)] == [1, 2]
    folder.append(3, {}, 0.0)
    assert [line["iteration"] for line in read_curve(folder.curve)] == [1, 2, 3]


class Killed(BaseException):
    """The process ends here."""


class Halfway(ToyLearner):
    """Is killed when half of its files are written."""

    def save(self, folder: Path) -> None:
        (folder / "half").write_text("x")
        raise Killed


def made(kind: type[ToyLearner]) -> ToyLearner:
    return kind(kind.Config(), spec=ToyEnv.spec, view="compact", seed=0)


def test_a_checkpoint_that_was_not_finished_does_not_count(folder):
    folder.save(learner(1), 1)
    with pytest.raises(Killed):
        folder.save(made(Halfway), 2)
    method = learner()
    assert folder.restore(method) == 1
    assert method.wins == 1
    folder.save(learner(2), 2)
    assert names(folder) == ["iteration-2", "latest"], "nothing is left of the unfinished one"


@pytest.mark.parametrize("call", range(1, 5))
def test_killed_at_any_rename_the_old_or_the_new_one_counts(folder, monkeypatch, call):
    folder.save(learner(1), 1)
    calls = 0

    def counting(plain: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise Killed
            return plain(*args, **kwargs)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", counting(Path.rename))
        patch.setattr(Path, "replace", counting(Path.replace))
        patch.setattr("shutil.rmtree", counting(__import__("shutil").rmtree))
        with pytest.raises(Killed):
            folder.save(learner(2), 2)
    method = learner()
    iteration = folder.restore(method)
    assert iteration in (1, 2)
    assert method.wins == iteration
    folder.save(learner(3), 3)
    assert names(folder) == ["iteration-3", "latest"]


@pytest.mark.parametrize("damage", ["{", "", '{"losses": 1}', "[1]"])
def test_a_damaged_checkpoint_is_named_with_a_way_out(folder, damage):
    folder.save(learner(1), 1)
    (folder.path / "iteration-1" / "method.json").write_text(damage)
    with pytest.raises(InputError, match=r"iteration-1 cannot be read .* delete .*seed-0 to train this seed anew"):
        folder.restore(learner())


def test_a_missing_checkpoint_is_named_too(folder):
    folder.save(learner(1), 1)
    (folder.path / "iteration-1" / "method.json").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        folder.restore(learner())


@pytest.mark.parametrize("place", ["checkpoint", "curve"])
def test_a_full_disk_is_said_and_the_last_checkpoint_is_as_it_was(folder, monkeypatch, place):
    folder.append(1, {}, 0.0)
    folder.save(learner(1), 1)

    class Full(ToyLearner):
        def save(self, folder: Path) -> None:
            raise OSError(28, "No space left on device")

    if place == "checkpoint":
        with pytest.raises(RunError, match=r"could not write .*iteration-2: No space left on device; free some space"):
            folder.save(made(Full), 2)
    else:

        def full(path: Path, *rest: Any) -> Any:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", full)
            with pytest.raises(RunError, match=r"could not write .*curve\.jsonl"):
                folder.append(2, {}, 0.0)
    method = learner()
    assert folder.restore(method) == 1
    assert method.wins == 1


def test_every_file_is_on_the_disk_before_it_counts(folder, monkeypatch):
    synced: list[str] = []
    plain = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    folder.save(learner(), 1)
    assert synced[0] == "method.json"
    assert "latest" in synced[1]


def test_a_method_without_state_has_an_empty_one(tmp_path):
    class Plain(ToyLearner):
        state_dict = Method.state_dict
        load_state_dict = Method.load_state_dict

    method = made(Plain)
    method.save(tmp_path)
    assert json.loads((tmp_path / "method.json").read_text()) == {}
    method.load(tmp_path)
    foreign: Mapping[str, Any] = {"wins": 3}
    with pytest.raises(ValueError, match=r"keeps no state, got \['wins'\]"):
        method.load_state_dict(foreign)
