"""The examples of CONTRIBUTING.md, installed as a plug-in would be and run as the document says."""

import os
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.batching import Lane
from harness.cli import main
from harness.episode import Episode
from harness.model import Kit
from harness.models.scripted import ScriptedModel
from tests.documents import ROOT, blocks, commands


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the examples' files and the metadata that pip would write for them, on the path, and gone into."""
    for language in ("python", "yaml"):
        for block in blocks("CONTRIBUTING.md", language):
            path = tmp_path / block.splitlines()[0].removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
    (declared,) = (tomllib.loads(block) for block in blocks("CONTRIBUTING.md", "toml"))
    lines = [
        line
        for group, points in declared["project"]["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in points.items()))
    ]
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_package"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package")
def test_the_examples_are_listed(capsys: pytest.CaptureFixture[str]):
    for kind, name in (("methods", "majority"), ("envs", "guess")):
        assert main(["list", kind]) == 0
        assert name in capsys.readouterr().out


@pytest.mark.usefixtures("package")
def test_the_examples_run_as_the_document_says(capsys: pytest.CaptureFixture[str]):
    """Vanilla and Majority both always say 13, so each solves one of the eight test tasks: 12.5%."""
    for command in commands("CONTRIBUTING.md"):
        program, *arguments = shlex.split(command)
        assert program == "harness"
        here = ["--workers", "1"] if arguments[0] == "run" else []  # one worker is this process: no start-up
        code = main([*arguments, *here])
        printed = capsys.readouterr()
        assert code == 0, f"{command}\n{printed.out}\n{printed.err}"
    rows = [line for line in printed.out.splitlines() if "12.5" in line]
    assert [row.split()[0] for row in rows] == ["Vanilla", "Majority"]


@pytest.mark.usefixtures("package")
def test_majority_follows_the_majority():
    """Two of three say the hidden number, one says another: the episode succeeds in one step."""
    from my_package.guess import Guess
    from my_package.majority import Majority

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
