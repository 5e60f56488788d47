"""Rows of a table as configurations."""

from __future__ import annotations

from functools import partial

import pytest

from harness.config import resolve
from harness.errors import InputError
from harness.variants import variants
from reports.spec import TableSpec, load_spec

pytestmark = pytest.mark.usefixtures("toys")

MINI = partial(resolve, scale="mini")


def table(*rows: dict, **changes) -> TableSpec:
    base = {"name": "t", "title": "T", "env": "toy", "columns": [{"metric": "success", "label": "S"}], "rows": rows}
    return TableSpec.model_validate(base | {"reference": rows[0].get("name", rows[0]["method"])} | changes)


SPEC = table(
    {"method": "toy-walker", "label": "Walker"},
    {"method": "toy-learner", "label": "Learner", "name": "plain"},
    {"method": "toy-learner", "label": "Short", "name": "short", "options": {"iterations": 1, "lane": 4}},
    {"method": "not-written", "label": "Later"},
)


def test_a_row_is_the_preset_and_its_own_options():
    walker, plain, short = variants(SPEC, MINI)
    assert (walker.place, plain.place, short.place) == (("toy-walker", "toy"), ("plain", "toy"), ("short", "toy"))
    assert (plain.config.options["iterations"], plain.config.lane) == (60, 64)
    assert (short.config.options["iterations"], short.config.lane) == (1, 4)
    assert short.config == resolve(method="toy-learner", env="toy", overrides=["iterations=1", "lane=4"])


def test_further_options_go_to_the_rows_that_have_them():
    found = variants(SPEC, MINI, ["rollouts=3", "limit=2"])
    assert [one.overrides for one in found] == [
        ("limit=2",),
        ("rollouts=3", "limit=2"),
        ("iterations=1", "lane=4", "rollouts=3", "limit=2"),
    ]
    assert [one.config.limit for one in found] == [2, 2, 2]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("iterations=2", r"iterations tells the rows of t apart \(short set it\)"),
        ("method.iterations=2", "tells the rows of t apart"),
        ("rollout=2", 'unknown option "rollout"; did you mean "rollouts"'),
        ("rollouts=0", "rollouts=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(option, message):
    with pytest.raises(InputError, match=message):
        variants(SPEC, MINI, [option])


def test_a_run_of_other_options_is_told_from_the_rows():
    _, plain, short = variants(SPEC, MINI, ["limit=2"])
    same = resolve(method="toy-learner", env="toy", overrides=["limit=2"]).model_dump(mode="json")
    assert plain.differences(same) == {}
    assert short.differences(same) == {"iterations": (60, 1), "lane": (64, 4)}
    assert plain.differences(same | {"limit": None}) == {"limit": (None, 2)}, "named with -o"
    assert plain.differences(same | {"dtype": "float16"}) == {}, "not named by anyone"


def test_an_option_younger_than_a_run_has_its_default():
    _, plain, _ = variants(SPEC, partial(resolve, scale="paper"), ["rollouts=4"])
    stored = plain.config.model_dump(mode="json")
    del stored["options"]["rollouts"]
    assert plain.differences(stored) == {}
    stored["options"]["gone"] = 1
    assert plain.differences(stored) == {"gone": (1, None)}, "and one that is no more is a difference"


def test_every_environment_has_its_rows():
    columns = [{"metric": "success", "label": env, "env": env} for env in ("toy", "webshop")]
    found = variants(table({"method": "vanilla", "label": "V"}, columns=columns), MINI)
    assert [one.place for one in found] == [("vanilla", "toy"), ("vanilla", "webshop")]


def test_the_grids_of_the_strata_paper():
    """Tables 3 to 6: which of their rows are one run."""

    def webshop(number, scale="mini"):
        found = variants(load_spec(f"strata_table{number}"), partial(resolve, scale=scale))
        return {one.row.key: one.config for one in found if one.env == "webshop"}

    parts = webshop(3)
    assert {(c.options["diversity"], c.options["judgment"]) for c in parts.values()} == {
        (False, False), (True, False), (False, True), (True, True)
    }  # fmt: skip
    assert webshop(4)["sigma1"] == parts["judgment"]
    assert webshop(4)["sigma8"] == parts["strata"]
    assert webshop(4, "paper")["sigma8"] == webshop(3, "paper")["strata"]
    assert [c.options["oversampling"] for name, c in webshop(4).items() if name != "sigma1"] == [2, 4, 8]
    assert webshop(5)["delta0.5"] == webshop(6)["kappa0.1"] == webshop(1)["strata"] == parts["strata"]
    assert [c.options["top_fraction"] for c in webshop(5).values()] == [0.1, 0.5, 1.0]
    assert [c.options["judgment_weight"] for c in webshop(6).values()] == [0.01, 0.1, 1.0]
