"""Learning curves: everything stored is shown, in eighty columns, and nothing is smoothed away that matters."""

import csv
import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.curves import GROUPS, MISSING, NOT_FINITE, Curves, Point, curves_csv, number, render_curves, sparkline
from reports.plots import plot_curves


def lines(*values, name="reward", start=1):
    return [{"iteration": start + k, name: value} for k, value in enumerate(values)]


def line_of(shown, name):
    return next(line for line in shown.splitlines() if line.split()[:1] == [name])


def test_every_stored_metric_is_shown_and_those_of_a_plug_in_come_last():
    stored = {name: 0.5 for names in GROUPS.values() for name in names} | {"zeal": 2.0, "apathy": 1.0}
    curves = Curves({0: [{"iteration": 1, **stored}]})
    assert curves.names == [*(name for names in GROUPS.values() for name in names), "apathy", "zeal"]
    shown = render_curves(curves, curves.names)
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("  ")] == curves.names
    assert [line for line in shown.splitlines() if line in GROUPS] == list(GROUPS)
    assert max(map(len, GROUPS)) <= 80


def test_what_is_no_number_is_no_metric():
    assert Curves({0: [{"iteration": 1, "note": "x", "flag": True, "nothing": None, "reward": 1}]}).names == ["reward"]


def test_one_seed_shows_first_and_last():
    shown = render_curves(Curves({3: lines(0.0, 0.5, 1.0)}), ["reward"])
    assert shown.splitlines()[0] == "curves of seed 3, 3 iterations: first -> last"
    assert line_of(shown, "reward").split() == ["reward", "▁▅█", "0", "->", "1"]


def test_several_seeds_show_their_mean_and_the_range_of_the_last():
    curves = Curves({0: lines(0.0, 0.2), 1: lines(0.5, 0.8)})
    assert curves.points("reward") == [Point(0.25, 0.0, 0.5), Point(0.5, 0.2, 0.8)]
    shown = render_curves(curves, ["reward"])
    assert line_of(shown, "reward").split(maxsplit=2)[2].replace("    ", "  ") == "0.250 -> 0.500  [0.200, 0.800]"
    assert "seed 1" not in shown
    shown = render_curves(curves, ["reward"], by_seed=True)
    assert line_of(shown, "seed").split()[1] == "0"
    assert "  seed 1                ▁█   0.500 -> 0.800" in shown


def test_a_seed_that_is_behind_is_named():
    curves = Curves({0: lines(0.0, 1.0, 1.0), 1: lines(0.5)})
    assert curves.points("reward")[1:] == [Point(1.0, 1.0, 1.0)] * 2
    assert "seed 1 has 1 so far" in render_curves(curves, ["reward"])


def test_iterations_that_stored_nothing_are_a_gap():
    curves = Curves({0: [{"iteration": 1, "kl": 0.0}, {"iteration": 2}, {"iteration": 3, "kl": 1.0}]})
    assert curves.values("kl", 0) == [0.0, None, 1.0]
    assert line_of(render_curves(curves, ["kl"]), "kl").split()[1] == f"▁{MISSING}█"


def test_a_value_that_is_not_finite_is_seen_and_does_not_flatten_the_rest():
    assert sparkline([0.0, math.nan, 1.0, math.inf]) == f"▁{NOT_FINITE}█{NOT_FINITE}"
    (point,) = Curves({0: lines(math.nan), 1: lines(1.0)}).points("reward")
    assert all(math.isnan(value) for value in (point.mean, point.low, point.high))


def test_a_sparkline_keeps_its_ends_and_its_width():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(1000)), width=60)) == 60


def test_the_peak_of_a_maximum_is_not_averaged_away():
    values = [1.0] * 99 + [9.0] + [1.0] * 100
    shown = {
        name: line_of(render_curves(Curves({0: lines(*values, name=name)}), [name]), name).split()[1]
        for name in ("ratio", "ratio_max")
    }
    assert shown["ratio_max"].count("█") == 1
    assert sparkline([1.0, 9.0, 8.0, 1.0], width=2, of=max) == "█▁"
    assert sparkline([1.0, 9.0, 8.0, 1.0], width=2) == "█▁"
    assert sparkline([1.0, 9.0, 6.0, 6.0], width=2, of=max) != sparkline([1.0, 9.0, 6.0, 6.0], width=2)


@given(st.floats(-1e99, 1e99))
def test_numbers_are_short_and_right(value):
    shown = number(value)
    assert len(shown) <= 7 + (value < 0) + (0 < abs(value) < 1e-99)
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.06)


def test_numbers_as_they_are_printed():
    shown = [number(x) for x in (0.0, 0.0469, 5.4378, 64.0, 362.44, 27_882.3, 1.23e7, 0.00054, 5.4e-5, math.nan)]
    assert shown == ["0", "0.047", "5.438", "64", "362.4", "27,882", "1.2e+07", "0.00054", "5.4e-05", "nan"]


@given(
    st.dictionaries(st.text("abcdefgh_", min_size=1, max_size=40), st.floats(-1e9, 1e9), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 200),
)
def test_curves_fit_eighty_columns(metrics, seeds, iterations):
    curves = Curves(
        {s: [{"iteration": k, **{name: v * (k + s) for name, v in metrics.items()}} for k in range(iterations)]
         for s in range(seeds)}
    )  # fmt: skip
    shown = render_curves(curves, curves.names, by_seed=True)
    assert max(map(len, shown.splitlines())) <= 80
    assert all(name in shown for name in metrics)


def test_csv_is_long_and_unrounded():
    curves = Curves({0: lines(1 / 3, 0.5), 2: [{"iteration": 1, "reward": 1.0, "kl": 0.1}]})
    found = list(csv.reader(io.StringIO(curves_csv(curves, ["reward", "kl"]))))
    assert found == [
        ["seed", "iteration", "metric", "value"],
        ["0", "1", "reward", repr(1 / 3)],
        ["0", "2", "reward", "0.5"],
        ["2", "1", "reward", "1.0"],
        ["2", "1", "kl", "0.1"],
    ]


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_plots_are_drawn_the_same_each_time(tmp_path, seeds, ending):
    pytest.importorskip("matplotlib")
    curves = Curves({seed: lines(0.0, 0.1 * seed, 1.0) for seed in range(seeds)})
    drawn = [tmp_path / f"{k}.{ending}" for k in range(2)]
    for path in drawn:
        plot_curves(curves, ["reward"], path, title="a run")
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    if ending == "svg":
        assert ("FillBetweenPolyCollection" in drawn[0].read_text()) == (seeds > 1), "the range is a band"


def test_another_ending_is_refused_before_matplotlib_is_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.svg, \.png, \.pdf"):
        plot_curves(Curves({0: lines(1.0)}), ["reward"], tmp_path / "x.gif", title="a run")
