"""`harness show`: the learning curves of a stored run, picked, as CSV and as a picture."""

from __future__ import annotations

import builtins
import json

import pytest

from harness.cli import main
from tests.commands.stored import store_run

CURVE = [{"iteration": k + 1, "success": k / 9, "kl": 0.1, "zeal": 5.0, "seconds": 1.5} for k in range(10)]


@pytest.fixture
def folder(toys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = store_run(tmp_path / "runs", "toy-learner", lambda number, seed: True, options={"iterations": 10})
    for seed in (0, 2, 10):
        write_curve(folder, seed, CURVE)
    return folder


def write_curve(folder, seed, lines):
    path = folder / "checkpoints" / f"seed-{seed}" / "curve.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def show(capsys, *options):
    code = main(["show", "toy-learner", *options])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_every_metric_of_a_run_is_shown(folder, capsys):
    code, told, _ = show(capsys)
    assert code == 0
    curves = told[told.index("curves of 10 iterations, mean of 3 seeds") :].splitlines()
    assert [line.split()[0] for line in curves if line.startswith("  ")] == ["success", "kl", "seconds", "zeal"]
    assert "mean ± sd" in told, "the evaluation stays"
    assert max(map(len, curves)) <= 80


def test_metrics_are_picked_and_shown_seed_by_seed(folder, capsys):
    code, told, _ = show(capsys, "--metrics", "zeal, success")
    assert code == 0
    seeds = [line.split()[:2] for line in told.splitlines() if "seed " in line]
    assert seeds == [["seed", "0"], ["seed", "2"], ["seed", "10"]] * 2
    assert "kl" not in told
    assert "method: toy-learner" not in told
    assert told.index("zeal") < told.index("success"), "in the order asked for"


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ("sucess", 'unknown --metrics "sucess"; did you mean "success"'),
        ("zeal,entropy", '"entropy" is not stored for toy-learner-toy-'),
        ("", 'unknown --metrics ""'),
    ],
)
def test_a_metric_that_is_not_there(folder, capsys, metrics, told):
    for how in ((), ("--csv",), ("--plot", "x.svg")):
        code, _, error = show(capsys, "--metrics", metrics, *how)
        assert code == 2
        assert told in error


def test_csv_holds_nothing_else(folder, capsys):
    code, told, _ = show(capsys, "--csv", "--metrics", "zeal")
    assert code == 0
    assert told.splitlines()[:2] == ["seed,iteration,metric,value", "0,1,zeal,5.0"]
    assert len(told.splitlines()) == 31
    assert show(capsys, "--csv")[1].count(",success,") == 30


def test_a_run_without_curves_says_so(folder, capsys):
    for path in folder.glob("checkpoints/*/curve.jsonl"):
        path.write_text("")
    code, told, _ = show(capsys)
    assert (code, "curves of" in told) == (0, False)
    code, _, told = show(capsys, "--csv")
    assert code == 2
    assert "has no learning curve: toy-learner does not learn, or has not finished an iteration" in told


def test_a_line_that_is_no_json_is_named(folder, capsys):
    path = write_curve(folder, 2, CURVE)
    path.write_text("{\n" + path.read_text())
    code, _, told = show(capsys)
    assert code == 2
    assert "checkpoints/seed-2/curve.jsonl holds a line that is no JSON" in told


def test_curves_are_drawn_into_a_file(folder, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    code, told, _ = show(capsys, "--plot", "curves.svg", "--metrics", "success,kl")
    assert code == 0
    assert told == "2 metrics of 3 seeds drawn in curves.svg\n"
    assert "<svg" in (tmp_path / "curves.svg").read_text()


@pytest.mark.parametrize(("path", "told"), [("x.gif", ".svg"), ("nowhere/x.svg", "nowhere/x.svg")])
def test_a_picture_that_cannot_be_drawn(folder, capsys, path, told):
    pytest.importorskip("matplotlib")
    code, _, error = show(capsys, "--plot", path)
    assert code == 2
    assert told in error


def test_without_matplotlib_the_extra_is_named(folder, capsys, monkeypatch):
    plain = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named {name!r}")
        return plain(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    code, _, told = show(capsys, "--plot", "x.svg")
    assert code == 2
    assert "abstraction-bench[plots]" in told
    assert "--csv" in told


def test_two_forms_at_once_are_refused(folder, capsys):
    code, _, told = show(capsys, "--csv", "--plot", "x.svg")
    assert code == 2
    assert "give one" in told
