"""The plan: a function of the configuration alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.config import resolve
from harness.errors import InputError
from harness.plan import Plan, make_plan, open_env
from harness.rows import row_key
from harness.runner import manifest
from tests.toys import ToyEnv

pytestmark = pytest.mark.usefixtures("toys")
TESTS = [task.id for task in ToyEnv().tasks("test")]


def plan(*seeds: int, method: str = "toy-learner", **given: Any) -> Plan:
    return make_plan(resolve(method=method, env="toy", models={"policy": "toy"}, **given), seeds or (0,))


def test_tasks_are_cut_into_lanes_in_order():
    made = plan(lane=3)
    assert [task.id for task in made.tasks] == TESTS
    assert [len(lane) for lane in made.lanes] == [3, 3, 1]
    assert [task for lane in made.lanes for task in lane] == list(made.tasks)


def test_a_stream_is_one_lane():
    assert [len(lane) for lane in plan(method="toy-memory", lane=3).lanes] == [7]


def test_the_last_iteration_is_evaluated_and_others_on_request():
    assert plan(overrides=["iterations=3", "eval_at=[]"]).evaluations == (3,)
    made = plan(0, 4, overrides=["iterations=3", "eval_at=[1, 0]"])
    assert made.evaluations == (0, 1, 3)
    assert made.episodes == len(TESTS) * 3 * 2
    assert plan(method="toy-walker").evaluations == (0,)
    with pytest.raises(InputError, match=r"eval_at=4 lies outside 0..3, the iterations of 'toy-learner'"):
        plan(overrides=["iterations=3", "eval_at=[1, 4]"])


def test_tasks_can_be_chosen_by_split_number_and_id():
    assert len(plan(split="train").tasks) == 15
    assert [task.id for task in plan(limit=2).tasks] == TESTS[:2]
    assert [task.id for task in plan(tasks=(TESTS[4], TESTS[1])).tasks] == [TESTS[4], TESTS[1]]
    assert [task.id for task in plan(tasks=(TESTS[4], TESTS[1]), limit=1).tasks] == [TESTS[4]]
    near = TESTS[0][:-1] + "9"
    with pytest.raises(InputError, match=f'unknown test task of toy: "{near}"; did you mean'):
        plan(tasks=(near,))
    with pytest.raises(InputError, match=f'"{TESTS[0]}" twice'):
        plan(tasks=(TESTS[0], TESTS[0]))


def test_seeds_do_not_enter_the_name():
    assert plan(0).name == plan(1, 2).name == f"toy-learner-toy-{plan().digest}"
    assert plan(limit=2).digest != plan(limit=3).digest


def test_the_users_prompts_are_read_once_and_not_for_every_row(tmp_path, monkeypatch):
    """The digest of the method stands in the key of every row; what it covers may be a folder of templates."""
    (tmp_path / "action.txt").write_text("mine")
    made = plan(overrides=[f"prompts={tmp_path}"])
    assert manifest(made).method_digest == made.method_digest != plan().method_digest
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read again"))
    keys = {row_key(made, 0, task, 0) for task in made.tasks}
    assert len(keys) == len(TESTS)
    assert {key.method_digest for key in keys} == {made.method_digest}


def test_a_split_without_tasks_is_refused(monkeypatch):
    monkeypatch.setattr(ToyEnv, "tasks", lambda self, split: [])
    with pytest.raises(InputError, match='environment "toy" has no test tasks'):
        plan()


def test_environments_are_closed_after_planning(monkeypatch):
    closed = []
    monkeypatch.setattr(ToyEnv, "close", lambda self: closed.append(self))
    plan()
    assert len(closed) == 1


def test_data_errors_and_perturbations_are_input_errors(monkeypatch):
    config = plan().config
    with pytest.raises(InputError, match="perturbation 'noise' is not known"):
        open_env(config.model_copy(update={"perturb": ("noise",)}))
    with pytest.raises(InputError, match="toy has no view"):
        open_env(config.model_copy(update={"view": "photo"}))
