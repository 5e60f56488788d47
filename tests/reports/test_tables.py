"""What a table says, number by number, and the files it prints, letter by letter."""

import csv
import io
import statistics
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from reports.caption import caption, notes
from reports.latex import escape
from reports.layout import comparisons_grid, values_grid
from reports.render import render
from reports.spec import TableSpec, load_spec, specs
from reports.tables import build_table
from results.papers import published
from results.statistics import AlignmentError, compare, holm
from tests.reports.example import BIG, FORMATS, GOLDEN, SUCCESSES_OF_TEN, example_table, rows, run
from tests.results.rows import failed_row

SPEC = load_spec("webshop")
CELLS = published("strata")


@pytest.fixture(scope="module")
def table():
    return example_table()


def three(**changes):
    """The three runs; `changes` replaces some by method."""
    return [changes.get(method) or run(method) for method in SUCCESSES_OF_TEN]


def row_of(table, method):
    return next(row for row in table.rows if row.spec.method == method)


@pytest.mark.parametrize("fmt", FORMATS)
def test_golden(table, fmt):
    """`python -m tests.reports.example` writes these files; read the difference before committing it."""
    assert render(table, fmt) == (GOLDEN / FORMATS[fmt]).read_text(encoding="utf-8")


class TestMeasured:
    def test_mean_and_sd_over_seeds_with_ddof_1(self, table):
        measured = row_of(table, "grpo").cells[1].measured
        by_seed = [100 * statistics.mean(r.success for r in rows("grpo") if r.seed == seed) for seed in range(3)]
        assert measured.mean == pytest.approx(statistics.mean(by_seed))
        assert measured.sd == pytest.approx(statistics.stdev(by_seed))
        assert (measured.n_tasks, measured.n_seeds) == (30, 3)

    def test_one_seed_has_no_sd(self):
        table = build_table(SPEC, [run("grpo", seeds=1), run("strata", seeds=1)], CELLS)
        assert row_of(table, "grpo").cells[0].measured.sd is None
        assert "mean of 1 seed" in caption(table)
        assert any(note.startswith("One seed") for note in notes(table))

    def test_a_method_that_was_not_run_keeps_its_published_value(self):
        table = build_table(SPEC, [run("strata")], CELLS)
        assert row_of(table, "grpo").cells[1].measured is None
        assert values_grid(table).rows[1][5:] == ("not run", "62.2 ± 1.2", "68.2 ± 1.4", "-")
        assert "Not run: Vanilla, GRPO." in notes(table)
        assert comparisons_grid(table) is None

    def test_nothing_run_at_all(self):
        table = build_table(SPEC, [], CELLS)
        assert "nothing was run" in caption(table)
        assert "68.2 ± 1.4" in render(table, "markdown")


class TestPublished:
    def test_values_stand_beside_the_measured_ones(self, table):
        cell = row_of(table, "strata").cells[0].published[BIG]
        assert (cell.mean, cell.std, cell.source) == (91.2, 0.3, "this_paper")

    def test_a_gap_only_for_a_comparable_run_and_its_own_model(self, table):
        strata = row_of(table, "strata").cells[0]
        assert strata.gap == pytest.approx(strata.measured.mean - 91.2)
        assert row_of(table, "grpo").cells[0].gap is None
        assert values_grid(table).rows[1][4] == "not comparable"
        assert "Not comparable: mini policy, embedded data (Vanilla, GRPO)." in notes(table)

    def test_a_comparable_run_of_a_model_the_paper_does_not_have(self):
        table = build_table(SPEC, three(strata=run("strata", comparable=True, backbone="Qwen2.5-32B")), CELLS)
        assert row_of(table, "strata").cells[0].gap is None
        assert values_grid(table).rows[2][4] == "-"

    def test_the_dagger_is_for_quoted_values_only(self, table):
        assert "†" not in render(table, "markdown")
        spec = SPEC.model_copy(
            update={"rows": (*SPEC.rows, SPEC.rows[0].model_copy(update={"method": "gigpo", "label": "GiGPO"}))}
        )
        quoted = build_table(spec, three(), CELLS)
        assert values_grid(quoted).rows[3][2] == "83.1 ± 1.6†"
        assert "† quoted there from another paper" in caption(quoted)
        assert not any("†" in text for row in values_grid(quoted).rows[:3] for text in row)
        assert r"83.1 $\pm$ 1.6$^{\dagger}$" in render(quoted, "latex")

    def test_uncertain_values_are_marked(self):
        cells = [cell.model_copy(update={"certainty": "uncertain"}) for cell in published("strata", method="grpo")]
        table = build_table(SPEC, three(), cells)
        assert values_grid(table).rows[1][2] == "80.0 ± 0.5?"
        assert any(note.startswith("?: ") for note in notes(table))

    def test_the_name_in_the_paper_may_differ(self):
        spec = SPEC.model_copy(update={"rows": (SPEC.rows[2].model_copy(update={"published": "GRPO"}),)})
        table = build_table(spec, [run("strata")], CELLS)
        assert row_of(table, "strata").cells[0].published[BIG].mean == 79.8

    def test_several_values_at_one_place_are_refused(self):
        spec = SPEC.model_copy(update={"table": "Table 4", "backbones": {"Qwen2.5-3B-Instruct": "3B"}})
        with pytest.raises(ValueError, match=r"Table 4 prints 4 values of strata.*sigma=1"):
            build_table(spec, three(), CELLS)

    def test_a_table_without_a_paper(self):
        spec = SPEC.model_copy(update={"paper": None, "table": None, "backbones": {}})
        table = build_table(spec, three())
        assert values_grid(table).header == ("Method", "measured", "measured")
        assert "Published" not in caption(table)
        assert not any("Not comparable" in note for note in notes(table))


class TestSignificance:
    def test_every_row_is_compared_with_the_reference(self, table):
        def matrix(method):
            return np.array([[r.success for r in rows(method) if r.seed == seed] for seed in range(3)]).T

        found = row_of(table, "vanilla").cells[1].found.comparison
        expected = compare(matrix("vanilla"), matrix("strata"), design="crossed", test="t")
        assert (found.delta, found.p) == pytest.approx((expected.delta, expected.p))
        assert all(cell.found is None for cell in table.reference.cells)

    def test_holm_runs_over_all_comparisons_printed(self, table):
        family = [found.comparison for found in table.family]
        assert len(family) == 4
        assert [c.p_holm for c in family] == list(holm([c.p for c in family]))
        assert "Holm's family: the 4 comparisons of this table" in caption(table)

    def test_the_star_follows_holm(self, table):
        shown = {row.spec.method: values for row, values in zip(table.rows, values_grid(table).rows, strict=True)}
        for row in table.rows:
            for place, cell in zip((1, 5), row.cells, strict=True):
                p = cell.found and cell.found.comparison.p_holm
                assert shown[row.spec.method][place].endswith("*") == (p is not None and p < 0.05)
        assert {cell.significant for row in table.rows for cell in row.cells} == {True, False}

    def test_independent_methods_are_compared_by_tasks(self):
        spec = SPEC.model_copy(update={"reference": "vanilla", "rows": SPEC.rows[:1]})
        other = SPEC.rows[0].model_copy(update={"method": "react", "label": "ReAct"})
        spec = spec.model_copy(update={"rows": (*spec.rows, other)})
        react = replace(
            run("vanilla"), method="react", rows=[r.model_copy(update={"method": "react"}) for r in rows("grpo")]
        )
        runs = [run("vanilla"), react]
        comparison = build_table(spec, runs, CELLS, resamples=200, seed=3).family[0].comparison
        assert (comparison.design, comparison.test, comparison.resamples, comparison.seed) == (
            "tasks",
            "shift2",
            200,
            3,
        )

    def test_without_the_reference_nothing_is_compared(self):
        table = build_table(SPEC, [run("vanilla"), run("grpo")], CELLS)
        assert table.family == []
        assert "No run of the reference StraTA: nothing is compared." in notes(table)

    def test_three_seeds_get_a_footnote_and_five_do_not(self, table):
        assert any("3 runs (about 2 degrees of freedom)" in note for note in notes(table))
        five = build_table(SPEC, [run(method, seeds=5) for method in SUCCESSES_OF_TEN], CELLS)
        assert not any("degrees of freedom" in note for note in notes(five))

    def test_one_shipped_starting_policy_is_said(self, table):
        assert "Vanilla, GRPO: all seeds start from one shipped policy (webshop-mini-1)" in caption(table)
        assert "shipped policy" not in caption(build_table(SPEC, three(), CELLS))

    def test_subsets_are_columns(self):
        columns = tuple(
            SPEC.columns[1].model_copy(update={"subset": name, "label": name}) for name in ("Pick", "Look", "All")
        )
        spec = SPEC.model_copy(update={"columns": columns})
        table = build_table(spec, three(), CELLS)
        assert [cell.measured.n_tasks for cell in table.reference.cells] == [20, 10, 30]
        assert [cell.found.comparison.n_tasks for cell in table.rows[0].cells] == [20, 10, 30]
        assert table.reference.cells[0].published[BIG] is None, "the paper has no WebShop subset of that name"
        bad = spec.model_copy(update={"columns": (columns[0].model_copy(update={"subset": "Cool"}),)})
        with pytest.raises(ValueError, match=r"no task of subset 'Cool'; the rows have \['Look', 'Pick'\]"):
            build_table(bad, three(), CELLS)


class TestRefusals:
    def test_missing_verdicts_and_how_to_leave_them_out(self):
        bad = failed_row(method="grpo", task="goal-03", seed=1, subset="Look")
        good = [row for row in rows("grpo") if (row.task, row.seed) != ("goal-03", 1)]
        broken = replace(run("grpo"), rows=[*good, bad])
        with pytest.raises(AlignmentError, match=r"grpo-webshop-0011aabb .*'goal-03', seed 1 has no verdict"):
            build_table(SPEC, three(grpo=broken), CELLS)
        table = build_table(SPEC, three(grpo=broken), CELLS, exclude_incomplete=True)
        assert table.excluded == ("goal-03",)
        assert {cell.measured.n_tasks for row in table.rows for cell in row.cells} == {29}
        assert any("goal-03 (1 task(s))" in note for note in notes(table))

    def test_other_tasks_seeds_data_or_environment(self):
        with pytest.raises(AlignmentError, match=r"vanilla-webshop-0011aabb .side a. and strata-webshop-0011aabb"):
            build_table(SPEC, three(strata=run("strata", tasks=29)), CELLS)
        with pytest.raises(AlignmentError, match="seeds"):
            build_table(SPEC, three(strata=run("strata", seeds=2)), CELLS)
        with pytest.raises(AlignmentError, match="data_digest"):
            build_table(SPEC, three(strata=run("strata", fields={"data_digest": "other"})), CELLS)
        with pytest.raises(ValueError, match="is of alfworld; table 'webshop' shows webshop"):
            build_table(SPEC, three(strata=run("strata", fields={"env": "alfworld"})), CELLS)

    def test_two_runs_of_one_method(self):
        with pytest.raises(ValueError, match="two runs of row 'grpo'"):
            build_table(SPEC, [run("grpo"), run("grpo")], CELLS)

    def test_a_method_without_a_row(self):
        spec = SPEC.model_copy(update={"rows": SPEC.rows[1:]})
        with pytest.raises(ValueError, match="no row for method 'vanilla' of run vanilla-webshop"):
            build_table(spec, three(), CELLS)

    def test_an_unknown_format(self, table):
        with pytest.raises(ValueError, match="unknown format 'html'"):
            render(table, "html")


def test_a_table_fits_eighty_columns(table):
    assert max(len(line) for line in render(table, "terminal").splitlines()) <= 80
    assert "test t, tasks 30, seeds 3." in render(table, "terminal")
    assert "discordant" in render(table, "terminal", width=140).split("tasks  seeds  ")[1], "there is room for all"


def test_csv_is_complete_and_unrounded(table):
    lines = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert len(lines) == 12, "three methods, two metrics, two published values"
    line = next(x for x in lines if (x["method"], x["metric"], x["published_model"]) == ("grpo", "success", BIG))
    found = row_of(table, "grpo").cells[1].found.comparison
    assert float(line["p_holm"]) == found.p_holm
    assert float(line["difference"]) == pytest.approx(100 * found.delta)
    assert (line["published_mean"], line["not_comparable"]) == ("68.2", "mini policy, embedded data")
    assert [x["gap"] != "" for x in lines if x["method"] == "strata"] == [False, True, False, True]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50% of_#1 & {x}", r"50\% of\_\#1 \& \{x\}"),
        (r"a\b~c^d $5", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d \$5"),
        ("-1.5 [-2.0, +3.0] <1e-4 cross-run", r"$-$1.5 [$-$2.0, +3.0] $<$1e-4 cross-run"),
        ("61.2 ± 0.5*†", r"61.2 $\pm$ 0.5$^{*}$$^{\dagger}$"),
        ("σ ≥ 4 × N, κ → 0", r"$\sigma$ $\ge$ 4 $\times$ N, $\kappa$ $\to$ 0"),
    ],
)
def test_latex_is_escaped(text, latex):
    assert escape(text) == latex


class TestSpec:
    def test_the_shipped_specifications_load(self):
        assert "webshop" in specs()
        assert [load_spec(name).name for name in specs()] == specs()

    def test_from_a_file(self, tmp_path):
        path = tmp_path / "mine.yaml"
        path.write_text(
            "{name: mine, title: T, env: webshop, reference: a, rows: [{method: a, label: A}],"
            " columns: [{metric: success, label: S}]}"
        )
        assert load_spec(str(path)).name == "mine"

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"unknown table 'webshp'; known: .*webshop"):
            load_spec("webshp")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"reference": "ppo"}, "reference 'ppo' is no row"),
            ({"rows": [{"method": "strata", "label": "x"}] * 2}, "occurs twice"),
            ({"paper": None}, "belong together"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_what_does_not_fit(self, change, message):
        with pytest.raises(ValidationError, match=message):
            TableSpec.model_validate(SPEC.model_dump() | change)
