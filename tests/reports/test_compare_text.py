"""A comparison in words: every number beside its p, every weakness below."""

import pytest

from reports import format as fmt
from reports.compare import render_comparison
from results.compare import compare_runs
from tests.reports.example import GOLDEN, example_comparison, rows


def text(couplings=("trained", "trained"), *, seeds=3, fields=None, **options):
    found = compare_runs(
        rows("strata", seeds=seeds, **(fields or {})),
        rows("grpo", seeds=seeds),
        coupling_a=couplings[0],
        coupling_b=couplings[1],
        **options,
    )
    return " ".join(render_comparison("strata", "grpo", found).split())


def test_golden():
    """Written by `python -m tests.reports.example`."""
    assert example_comparison() == (GOLDEN / "compare.txt").read_text(encoding="utf-8")


def test_a_comparison_fits_eighty_columns():
    assert max(len(line) for line in example_comparison().splitlines()) <= 80


def test_the_weaknesses_are_named():
    assert "One seed" in text(seeds=1)
    assert "One seed" not in text(("independent", "independent"), seeds=1)
    assert "is estimated from 2 runs (about 1 degree of freedom)" in text(seeds=2)
    assert "degree" not in text(seeds=5)
    assert "degree" not in text(("independent", "independent"), seeds=2), "repeated samples are no training runs"
    assert "up to 39%" in text(design="tasks")
    assert "up to 39%" not in text(("independent", "independent"))
    assert "(drift)" in text(fields={"drift": True})
    assert "protocol=stream" in text(fields={"protocol": "stream"})


def test_few_tasks_and_groups():
    few = [[row for row in rows(m) if row.task < "goal-12"] for m in ("strata", "grpo")]
    found = compare_runs(*few, coupling_a="independent", coupling_b="independent")
    assert "12 independent tasks or groups" in render_comparison("a", "b", found)
    grouped = [[row.model_copy(update={"group": row.task[:-1]}) for row in rows(m)] for m in ("strata", "grpo")]
    found = compare_runs(*grouped, coupling_a="independent", coupling_b="independent", test="signflip")
    shown = render_comparison("a", "b", found)
    assert "resampled together: 3 groups" in shown
    assert "too short" not in shown, "sign flips do not have that weakness"


def test_excluded_tasks_are_listed():
    found = compare_runs(
        rows("strata")[:-3], rows("grpo"), coupling_a="trained", coupling_b="trained", exclude_incomplete=True
    )
    assert "goal-29 (1 task(s))" in render_comparison("a", "b", found)


@pytest.mark.parametrize(
    ("p", "shown"), [(None, "-"), (0.00009999, "<1e-4"), (0.0004, "4e-4"), (0.0316, "0.032"), (1.0, "1.000")]
)
def test_p_values(p, shown):
    assert fmt.p_value(p) == shown


def test_numbers():
    assert [fmt.signed(x) for x in (1.25, -0.04, -2.0, 0.0)] == ["+1.2", "0.0", "-2.0", "0.0"]
    assert fmt.number(-10.04) == "-10.0"
    assert fmt.mean_sd(61.25, None) == "61.2"
    assert (fmt.factor("success"), fmt.factor("steps")) == (100, 1)
