"""Rows and transcripts: what they say, and that a kill between the two loses neither."""

from __future__ import annotations

from typing import Any

import pytest

from harness.events import Notice
from harness.rows import row_key, transcript_file
from harness.types import Status
from results.store import RunFolder, read_rows
from results.transcripts import read_transcripts
from tests.toy_runs import cell, stored, toy_plan
from tests.toys import ToyModel

pytestmark = pytest.mark.usefixtures("toys")


def test_a_row_says_where_it_comes_from(tmp_path):
    plan = toy_plan()
    cell(plan, tmp_path).run()
    task = plan.tasks[0]
    rows = read_rows(RunFolder(tmp_path / plan.name).rows)
    row = next(row for row in rows if (row.task, row.iteration) == (task.id, 0))
    assert (row.run, row.method, row.env, row.model, row.task) == (plan.name, "toy-learner", "toy", "toy", task.id)
    assert (row.subset, row.seed, row.iteration, row.status) == (task.subset, 0, 0, Status.OK)
    assert (row.backend, row.deterministic, row.protocol, row.view) == ("toy", True, "standard", "compact")
    assert (row.env_version, row.data_digest, row.drift, row.attempt) == ("1", "embedded", False, 1)
    assert row.steps > 0
    assert row.tokens_in > row.tokens_out >= row.steps
    assert row.reward == float(row.success)


def test_a_row_says_which_try_it_is(tmp_path):
    plan = toy_plan(method="toy-walker")
    retried, fresh = plan.lanes[0][:2]
    cell(plan, tmp_path, attempts={row_key(plan, 0, retried, 0): 2}).evaluate(0, 0)
    tries = {row["task"]: row["attempt"] for row in stored(plan, tmp_path)}
    assert (tries[retried.id], tries[fresh.id]) == (3, 1)


def test_transcripts_are_kept_by_lane_and_iteration(tmp_path):
    plan = toy_plan()
    cell(plan, tmp_path).run()
    files = sorted(path.name for path in (tmp_path / plan.name / "transcripts" / "seed-0").iterdir())
    assert files == sorted(
        f"{prefix}lane-{lane}.jsonl.zst" for lane in (0, 1) for prefix in ("", "iteration-0-", "iteration-2-")
    )
    last = list(read_transcripts(RunFolder(tmp_path / plan.name).transcripts(0, 0)))
    assert [entry["task"] for entry in last] == sorted(task.id for task in plan.lanes[0])
    assert last[0]["turns"][0]["reply"] == (last[0]["steps"][0]["action"] or "hmm")
    assert last[0]["error"] is None


def test_transcripts_can_be_switched_off(tmp_path):
    plan = toy_plan("transcripts=false")
    cell(plan, tmp_path).run()
    assert not (tmp_path / plan.name / "transcripts").exists()


def test_transcripts_that_a_kill_took_are_made_again_and_no_row_is(tmp_path):
    """Between a lane's last row and its transcripts there is a moment."""
    plan = toy_plan(method="toy-walker")
    cell(plan, tmp_path).evaluate(0, 0)
    file = RunFolder(tmp_path / plan.name).transcripts(0, 0)
    told, rows = list(read_transcripts(file)), stored(plan, tmp_path)
    file.unlink()
    again = cell(plan, tmp_path, finished={row_key(plan, 0, task, 0) for task in plan.lanes[0]})
    assert again.evaluate(0, 0)
    assert list(read_transcripts(file)) == told
    assert stored(plan, tmp_path) == rows


def test_transcripts_whose_checkpoint_is_gone_are_given_up_with_a_notice(tmp_path):
    plan, events = toy_plan(), []
    cell(plan, tmp_path).run()
    folder = RunFolder(tmp_path / plan.name)
    lost = [transcript_file(plan, folder, 0, iteration, lane=0) for iteration in (0, 2)]
    for file in lost:
        file.unlink()
    before = stored(plan, tmp_path)
    finished = {row_key(plan, 0, task, n) for n in plan.evaluations for task in plan.tasks}
    cell(plan, tmp_path, finished=finished, events=events).run()
    assert [file.is_file() for file in lost] == [True, False], "iteration 0 needs none"
    assert [event.text for event in events if isinstance(event, Notice)] == [
        "seed 0: the transcripts of iteration 2 are gone, and so is the checkpoint to play it again; its rows stand"
    ]
    assert stored(plan, tmp_path) == before


def test_what_cannot_be_played_again_is_told_before_its_row_stands(tmp_path, monkeypatch):
    """A model that is not deterministic: a kill after any row leaves the transcript of that row."""
    monkeypatch.setattr(ToyModel, "deterministic", False)
    plan = toy_plan(method="toy-walker")
    seen: list[bool] = []

    def told(event: Any) -> None:
        file = RunFolder(tmp_path / plan.name).transcripts(0, 0)
        seen.append(event.task in {entry["task"] for entry in read_transcripts(file)})

    cell(plan, tmp_path, listen=told).evaluate(0, 0)
    assert seen == [True] * 4
    finished = {row_key(plan, 0, task, 0) for task in plan.lanes[0]}
    RunFolder(tmp_path / plan.name).transcripts(0, 0).unlink()
    assert cell(plan, tmp_path, finished=finished).evaluate(0, 0), "and nothing is played for lost ones"
    assert len(stored(plan, tmp_path)) == 4
