"""Tables whose rows are variants of one method, and whose columns are of several environments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports.caption import caption, notes
from reports.layout import values_grid, values_grids
from reports.spec import load_spec
from reports.tables import build_table
from results.papers import published
from tests.reports.example import run

PARTS = load_spec("strata_table3")
CELLS = published("strata")
MIDDLE = "Qwen2.5-3B-Instruct"


def variant(name, method="strata"):
    """A run of StraTA that stands in row `name`, with the successes of some method."""
    made = run(method)
    rows = [row.model_copy(update={"method": "strata"}) for row in made.rows]
    return replace(made, label=name, method="strata", row=name, rows=rows)


def test_rows_of_one_method_have_their_own_runs():
    table = build_table(PARTS, [variant("strata"), variant("diverse", "grpo")], CELLS)
    cells = {row.spec.key: row.cells[-1] for row in table.rows}
    assert {name: cell.run and cell.run.label for name, cell in cells.items()} == {
        "vanilla": None, "diverse": "diverse", "judgment": None, "strata": "strata"
    }  # fmt: skip
    assert cells["diverse"].measured.mean != cells["strata"].measured.mean
    assert cells["diverse"].found.comparison.delta < 0
    assert cells["strata"].found is None
    assert [cell.published[MIDDLE].mean for cell in cells.values()] == [64.0, 64.6, 66.7, 73.4]
    assert "Not run on webshop: Vanilla, Judgment." in notes(table)
    assert len(table.family) == 2, "two metrics; nothing was run on ALFWorld"


def test_the_row_must_be_said():
    with pytest.raises(ValueError, match="may be any of the rows vanilla, diverse, judgment, strata; say which"):
        build_table(PARTS, [replace(variant("strata"), row=None)], CELLS)
    with pytest.raises(ValueError, match="two runs of row 'strata'"):
        build_table(PARTS, [variant("strata")] * 2, CELLS)


def test_the_variant_tells_published_values_apart():
    table = build_table(load_spec("strata_table4"), [], CELLS)
    assert [row.cells[-1].published[MIDDLE].mean for row in table.rows] == [66.7, 56.6, 69.1, 73.4]


def test_environments_are_aligned_apart_and_corrected_together():
    columns = tuple(PARTS.columns[-1].model_copy(update={"env": env, "label": env}) for env in ("alfworld", "webshop"))
    spec = PARTS.model_copy(update={"columns": columns})
    runs = [variant("strata"), variant("diverse", "grpo")]
    runs += [replace(one, rows=[r.model_copy(update={"env": "alfworld"}) for r in one.rows[:60]]) for one in runs]
    table = build_table(spec, runs, CELLS)
    assert [cell.measured.n_tasks for cell in table.reference.cells] == [20, 30]
    assert len(table.family) == 2
    assert "on 20 tasks of alfworld; mean ± sd over 3 seeds (sd with ddof 1) on 30 tasks of webshop" in caption(table)
    assert "Holm's family: the 2 comparisons" in caption(table)


def test_many_columns_are_several_grids():
    table = build_table(PARTS, [variant("strata")], CELLS)
    grids = values_grids(table)
    assert [len(grid.header) - 1 for grid in grids] == [6, 6, 9, 6]
    assert [name for grid in grids for name, _ in grid.groups[1:]] == [column.label for column in PARTS.columns]
    assert [sum((grid.rows[k][1:] for grid in grids), ()) for k in range(4)] == [
        row[1:] for row in values_grid(table).rows
    ]


def test_notes_of_the_table_and_of_its_caller_are_printed():
    assert notes(build_table(PARTS, [], CELLS, remarks=["To run it: do."]))[-2:] == [*PARTS.notes, "To run it: do."]


@pytest.mark.parametrize(("number", "cells"), [(1, 126), (2, 42), (3, 36), (4, 36), (5, 27), (6, 27)])
def test_every_number_of_the_strata_paper_has_its_place(number, cells):
    """All but those of three closed-source models: 9 cells for each in Table 1, 6 in Table 2."""
    table = build_table(load_spec(f"strata_table{number}"), [], CELLS)
    assert sum(v is not None for row in table.rows for cell in row.cells for v in cell.published.values()) == cells
