"""Rows become paired arrays, or the reason why not is named."""

from types import SimpleNamespace

import numpy as np
import pytest

from results.statistics import AlignmentError, align, compare


def row(task, seed, success, *, group=None, iteration=0, status="ok", score=0.5):
    return SimpleNamespace(
        task=task, seed=seed, success=success, score=score, group=group, iteration=iteration, status=status
    )


def run(table, **options):
    """Rows of {task: [success per seed]}."""
    return [row(task, seed, value, **options) for task, line in table.items() for seed, value in enumerate(line)]


A = {"t1": [True, False], "t2": [True, True], "t3": [False, False]}
B = {"t3": [False, True], "t1": [False, False], "t2": [True, False]}


def test_pairs_by_task_and_seed_whatever_the_order():
    found = align(run(A), reversed(run(B)))
    assert (found.tasks, found.seeds, found.groups) == (("t1", "t2", "t3"), (0, 1), None)
    assert found.a.tolist() == [[1, 0], [1, 1], [0, 0]]
    assert found.b.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_the_order_of_rows_changes_no_resample():
    def p(rows_a, rows_b):
        found = align(rows_a, rows_b)
        return compare(found.a, found.b, design="tasks", test="shift2", resamples=200)

    assert p(run(A), run(B)) == p(run(A)[::-1], run(B)[3:] + run(B)[:3])


def test_other_metrics():
    assert np.all(align(run(A), run(B), "score").a == 0.5)


def test_groups_come_along():
    found = align(run(A, group="g"), run(B, group="g"))
    assert found.groups == ("g", "g", "g")


def test_different_task_sets_are_named():
    with pytest.raises(AlignmentError, match="side b: task 't9' missing"):
        align(run({**A, "t9": [True, True]}), run(B))


def test_missing_rows_are_named():
    with pytest.raises(ValueError, match="side a: task 't3', seed 1 missing"):
        align(run(A)[:-1], run(B))


def test_rows_without_a_verdict_are_no_zeros():
    rows = [*run(A)[:-1], row("t3", 1, None, status="infra_error")]
    with pytest.raises(AlignmentError, match=r"side a: task 't3', seed 1 has no verdict \(infra_error\)"):
        align(rows, run(B))


def test_exclude_incomplete_drops_a_task_on_both_sides_and_lists_it():
    rows = [*run(A)[:-1], row("t3", 1, None, status="infra_error")]
    found = align(rows, run({**B, "t9": [True, True]}), exclude_incomplete=True)
    assert found.tasks == ("t1", "t2")
    assert found.excluded == ("t3", "t9")
    assert found.a.shape == found.b.shape == (2, 2)


def test_nothing_left_is_an_error():
    with pytest.raises(AlignmentError, match="no task is complete"):
        align(run({"t1": [True]}), run({"t2": [True]}), exclude_incomplete=True)


def test_different_seeds():
    with pytest.raises(AlignmentError, match=r"side a has seeds \[0, 1\], side b \[0\]"):
        align(run(A), [r for r in run(B) if r.seed == 0], exclude_incomplete=True)


def test_one_iteration_a_side():
    with pytest.raises(AlignmentError, match=r"side b has rows of iterations \[0, 5\]"):
        align(run(A), run(B) + run(B, iteration=5))


def test_a_pair_measured_twice():
    with pytest.raises(AlignmentError, match="two rows for task 't1', seed 0"):
        align([*run(A), row("t1", 0, False)], run(B))


def test_groups_that_differ():
    with pytest.raises(AlignmentError, match="different groups: t1; t2; t3"):
        align(run(A, group="g"), run(B))


def test_no_rows():
    with pytest.raises(AlignmentError, match="side b has no rows"):
        align(run(A), [])


def test_a_long_list_is_counted():
    many = {f"x{i}": [True] for i in range(9)}
    with pytest.raises(AlignmentError, match="and 4 more"):
        align(run({"t": [True], **many}), run({"t": [True]}))
