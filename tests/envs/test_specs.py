"""The counts that `plan` prints are the published ones; a wrong one makes every cell of a table incomparable."""

import pytest

from envs.specs import SPECS
from harness.types import SPLITS


@pytest.mark.parametrize(
    ("name", "horizon", "tests"),
    [
        ("alfworld", 50, 140),
        ("sciworld", 20, 175),
        ("webarena", 30, 812),
        ("webarena-lite", 30, 165),
        ("webarena-verified", 30, 812),
        ("visualwebarena", 30, 910),
        ("mind2web", 30, 300),
        ("mind2web-x", 30, None),
        ("miniwob", 10, 125),
        ("sites", 30, None),
    ],
)
def test_horizon_and_test_count(name, horizon, tests):
    assert (SPECS[name].horizon, SPECS[name].counts["test"]) == (horizon, tests)


def test_every_specified_environment_is_checked_above():
    marker = next(m for m in test_horizon_and_test_count.pytestmark if m.name == "parametrize")
    assert {name for name, _, _ in marker.args[1]} == set(SPECS)


@pytest.mark.parametrize("name", SPECS)
def test_subsets_add_up_to_the_test_set(name):
    """A subset table whose columns do not cover all tasks would average to something else than All."""
    sizes = [size for size in SPECS[name].subsets.values() if size is not None]
    if sizes:
        assert sum(sizes) == SPECS[name].counts["test"]


def test_alfworld_columns_in_the_papers_order():
    """StraTA Table 1: valid_seen, not AgentGym's 200 tasks (46/19/37/25/28/45)."""
    assert SPECS["alfworld"].subsets == {"Pick": 35, "Look": 13, "Clean": 27, "Heat": 16, "Cool": 25, "Pick2": 24}
    assert list(SPECS["alfworld"].subsets) == ["Pick", "Look", "Clean", "Heat", "Cool", "Pick2"]


def test_sciworld_reports_score_over_five_columns():
    assert SPECS["sciworld"].outcome == "score"
    assert SPECS["sciworld"].subsets == {"Measure": 28, "Test-Cond": 83, "Find": 44, "Chem-Mix": 5, "Lifespan": 15}


@pytest.mark.parametrize("name", SPECS)
def test_spec_is_complete_and_says_what_is_missing(name):
    spec = SPECS[name]
    assert spec.name == name
    assert spec.version == 0  # not playable: the first playable version is 1
    assert set(spec.counts) == set(SPLITS)  # an open count is None, never left out
    assert spec.data
    assert spec.extra
