"""Which rows are compared, by which design, corrected over what."""

import numpy as np
import pytest

from results.compare import compare_runs
from results.statistics import AlignmentError, compare, holm
from tests.results.rows import failed_row, make_row

rng = np.random.default_rng(0)
WINS = {"strata": rng.random((12, 3)) < 0.8, "grpo": rng.random((12, 3)) < 0.4}


def run(method, *, seeds=3, **fields):
    return [
        make_row(
            method=method, task=f"goal-{t}", seed=s, success=bool(WINS[method][t, s]), score=(t + s) % 5 / 4, **fields
        )
        for t in range(12)
        for s in range(seeds)
    ]


def found(rows_a=None, rows_b=None, *, couplings=("trained", "trained"), **options):
    a, b = rows_a or run("strata"), rows_b or run("grpo")
    return compare_runs(a, b, coupling_a=couplings[0], coupling_b=couplings[1], **options)


@pytest.mark.parametrize(
    ("couplings", "seeds", "design", "test"),
    [
        (("trained", "trained"), 3, "crossed", "t"),
        (("independent", "trained"), 3, "crossed", "t"),
        (("online", "independent"), 2, "crossed", "t"),
        (("independent", "independent"), 3, "tasks", "shift2"),
        (("trained", "trained"), 1, "tasks", "shift2"),
    ],
)
def test_the_coupling_picks_the_design(couplings, seeds, design, test):
    (one,) = found(run("strata", seeds=seeds), run("grpo", seeds=seeds), couplings=couplings, resamples=100)
    assert (one.comparison.design, one.comparison.test, one.comparison.n_seeds) == (design, test, seeds)
    assert one.coupled == (couplings != ("independent", "independent"))


def test_the_numbers_are_those_of_compare():
    (one,) = found()
    expected = compare(WINS["strata"], WINS["grpo"], design="crossed", test="t")
    assert one.comparison.delta == expected.delta
    assert one.comparison.p == pytest.approx(expected.p)
    assert one.comparison.p_holm == one.comparison.p
    assert (one.mean_a, one.mean_b) == (WINS["strata"].mean(), WINS["grpo"].mean())


def test_holm_runs_over_the_metrics_that_are_printed():
    both = found(metrics=("success", "steps"))
    assert [one.metric for one in both] == ["success", "steps"]
    assert [one.comparison.p_holm for one in both] == list(holm([one.comparison.p for one in both]))


def test_design_and_test_can_be_named():
    (one,) = found(design="pigeonhole", test="inversion", resamples=50, seed=7)
    c = one.comparison
    assert (c.design, c.test, c.resamples, c.seed) == ("pigeonhole", "inversion", 50, 7)
    with pytest.raises(ValueError, match="design 'crossed' has no test 'shift2'"):
        found(test="shift2")


def test_groups_are_used():
    a = [row.model_copy(update={"group": row.task[-1]}) for row in run("strata")]
    b = [row.model_copy(update={"group": row.task[-1]}) for row in run("grpo")]
    with pytest.raises(ValueError, match="12 tasks fall in 10 groups"):
        found(a, b)
    (one,) = found(a, b, couplings=("independent", "independent"), resamples=50)
    assert (one.comparison.n_tasks, one.comparison.n_clusters) == (12, 10)


def test_each_side_is_compared_after_its_last_iteration():
    early = [row.model_copy(update={"success": False, "iteration": 10}) for row in run("strata")]
    (one,) = found(early + run("strata"), run("grpo", iteration=0))
    assert one.mean_a == WINS["strata"].mean()
    (named,) = found(early + run("strata"), early + run("grpo"), iteration=10)
    assert named.comparison.delta == 0
    with pytest.raises(AlignmentError, match=r"no rows of iteration 10 in run grpo.*\[20\]"):
        found(early + run("strata"), run("grpo"), iteration=10)


def test_a_seed_that_has_not_reached_the_last_iteration_is_missing():
    rows = [row.model_copy(update={"iteration": 10}) if row.seed == 2 else row for row in run("strata")]
    with pytest.raises(AlignmentError, match=r"side a has seeds \[0, 1\]"):
        found(rows)


def test_incomplete_tasks():
    rows = [*run("strata")[1:], failed_row(method="strata", task="goal-0", seed=0)]
    with pytest.raises(AlignmentError, match="side a: task 'goal-0', seed 0 has no verdict"):
        found(rows)
    (one,) = found(rows, exclude_incomplete=True)
    assert one.excluded == ("goal-0",)
    assert one.comparison.n_tasks == 11


@pytest.mark.parametrize("field", ["method_digest", "model", "perturbation", "view"])
def test_one_side_is_one_cell(field):
    value = "full" if field == "view" else "other"
    mixed = run("strata")[:3] + [row.model_copy(update={field: value}) for row in run("strata")[3:]]
    with pytest.raises(AlignmentError, match=f"side a mixes rows of several {field}s"):
        found(mixed)


@pytest.mark.parametrize("field", ["env", "env_version", "data_digest"])
def test_both_sides_face_the_same_world(field):
    with pytest.raises(AlignmentError, match=f"{field} .*side b other"):
        found(run("strata"), run("grpo", **{field: "other"}))


def test_drift_and_stream_are_carried():
    (one,) = found(run("strata", drift=True), run("grpo", protocol="stream"))
    assert (one.drift, one.stream) == (True, True)
    (clean,) = found()
    assert (clean.drift, clean.stream) == (False, False)
