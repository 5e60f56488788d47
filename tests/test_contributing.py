"""The examples of CONTRIBUTING.md, installed as a plug-in would be and run as the document says."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.documents import ROOT, blocks, commands


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with the examples' files, and with the metadata that pip would write for their entry points."""
    for language in ("python", "yaml"):
        for block in blocks("CONTRIBUTING.md", language):
            path = tmp_path / block.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
    (declared,) = (tomllib.loads(block) for block in blocks("CONTRIBUTING.md", "toml"))
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    lines = [
        line
        for group, points in declared["project"]["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def harness(folder: Path, *arguments: str) -> str:
    """Run the command line in a fresh process that finds the plug-in; its output."""
    path = f"{folder}:{ROOT}"
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"harness {' '.join(arguments)}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    return done.stdout


def test_the_examples_are_listed(package: Path):
    assert "majority" in harness(package, "list", "methods")
    assert "guess" in harness(package, "list", "envs")


def test_the_examples_run_as_the_document_says(package: Path):
    """Vanilla and Majority both always say 13, so each solves one of the eight test tasks: 12.5%."""
    for command in commands("CONTRIBUTING.md"):
        words = shlex.split(command)
        assert words[0] == "harness"
        output = harness(package, *words[1:])
    table = output
    assert "Majority of 3" in table
    assert "12.5" in table


def test_majority_follows_the_majority(package: Path, monkeypatch: pytest.MonkeyPatch):
    """Two of three say the hidden number, one says another: the episode succeeds in one step."""
    monkeypatch.syspath_prepend(str(package))
    from my_package.guess import Guess
    from my_package.majority import Majority

    from harness.batching import Lane
    from harness.episode import Episode
    from harness.model import Kit
    from harness.models.scripted import ScriptedModel

    method = Majority(Majority.Config(), spec=Guess.spec, view="full", seed=0)
    model = ScriptedModel(["<action>13</action>", "<action>3</action>", "<action>13</action>"])
    task = next(task for task in Guess().tasks("test") if task.payload == 13)
    lane = Lane()
    episode = Episode(
        task,
        Guess,
        lane=lane,
        kit=Kit({"policy": model}),
        sampling=method.sampling("eval"),
        run_seed=0,
        key=("eval", 0, 0, task.id, -1, 0),
        seed=0,
        mode="eval",
        horizon=Guess.spec.horizon,
    )
    trajectory = lane.run(method.solve(episode))
    assert trajectory.success
    assert [step.action for step in trajectory.steps] == ["13"]
    assert lane.counters.sizes == [3]  # the votes shared one batch
