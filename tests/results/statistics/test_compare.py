"""What `compare` must hold for any scores, and what it must refuse."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.statistics import cluster_se, compare, holm, with_holm
from results.statistics.bootstrap import cluster_tally, draw, pigeonhole_tally
from results.statistics.comparison import VALID_TESTS
from results.statistics.differences import paired_differences

PAIRS = [(design, test) for design, tests in VALID_TESTS.items() for test in tests if test != "mcnemar"]
B = 400


@st.composite
def matrices(draw_value, tasks=(3, 6), seeds=(2, 3)):
    """Two matrices of successes of equal shape."""
    shape = (draw_value(st.integers(*tasks)), draw_value(st.integers(*seeds)))
    bits = st.lists(st.integers(0, 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    return np.array(draw_value(bits)).reshape(shape), np.array(draw_value(bits)).reshape(shape)


@settings(max_examples=40, deadline=None)
@given(matrices(), st.sampled_from([pair for pair in PAIRS if pair[1] != "shift1"]))
def test_swapping_the_methods_turns_the_sign_and_keeps_p(scores, pair):
    a, b = scores
    design, test = pair
    forth = compare(a, b, design=design, test=test, resamples=B)
    back = compare(b, a, design=design, test=test, resamples=B)
    assert back.delta == -forth.delta
    assert back.interval == pytest.approx((-forth.interval[1], -forth.interval[0]))
    assert back.p == pytest.approx(forth.p)
    assert back.se == pytest.approx(forth.se)


@settings(max_examples=40, deadline=None)
@given(matrices(), st.sampled_from([("tasks", "t"), ("tasks", "signflip"), ("crossed", "t")]), st.randoms())
def test_the_order_of_tasks_does_not_matter(scores, pair, random):
    a, b = scores
    order = random.sample(range(len(a)), len(a))
    design, test = pair
    first = compare(a, b, design=design, test=test, resamples=B)
    second = compare(a[order], b[order], design=design, test=test, resamples=B)
    assert (second.delta, second.se, second.p) == pytest.approx((first.delta, first.se, first.p))


@settings(max_examples=30, deadline=None)
@given(matrices(), st.integers(2, 3))
def test_duplicated_seeds_bring_no_evidence(scores, copies):
    """A method that is deterministic gains nothing from being run again."""
    a, b = scores
    once = compare(a, b, design="tasks", test="shift2", resamples=B)
    often = compare(np.tile(a, copies), np.tile(b, copies), design="tasks", test="shift2", resamples=B)
    assert often.se == pytest.approx(once.se, abs=1e-12)
    assert often.p == once.p


@pytest.mark.parametrize("pair", PAIRS)
def test_no_difference_gives_p_one(pair):
    design, test = pair
    same = np.ones((4, 3))
    found = compare(same, same, design=design, test=test, resamples=B)
    assert (found.delta, found.se, found.p, found.interval) == (0, 0, 1, (0, 0))


@pytest.mark.parametrize("pair", PAIRS)
def test_a_constant_difference_has_no_error(pair):
    design, test = pair
    found = compare(np.ones((4, 3)), np.zeros((4, 3)), design=design, test=test, resamples=B)
    assert (found.delta, found.se, found.interval) == (1, 0, (1, 1))


@settings(max_examples=25, deadline=None)
@given(matrices(tasks=(3, 5)), st.sampled_from(["shift2", "shift1", "inversion"]))
def test_monte_carlo_agrees_with_all_resamples(scores, test):
    a, b = scores
    n, resamples = len(a), 4000
    everything = np.array(list(itertools.product(range(n), repeat=n)))
    tally = cluster_tally(paired_differences(a, b), [everything])
    counts = {
        "shift2": tally.beyond_shift,
        "shift1": tally.beyond_double,
        "inversion": 2 * min(tally.at_most_zero, tally.at_least_zero),
    }
    exact = min(1.0, counts[test] / len(everything))
    found = compare(a, b, design="tasks", test=test, resamples=resamples, seed=3).p
    # inversion doubles a tail, so its error doubles as well; 2 / B is the +1 of both tails
    width = 4 * np.sqrt(exact * (1 - exact) / resamples) * (2 if test == "inversion" else 1)
    assert abs(found - exact) <= width + 2 / resamples


@settings(max_examples=15, deadline=None)
@given(matrices(tasks=(3, 4), seeds=(2, 2)))
def test_monte_carlo_agrees_with_all_pigeonhole_resamples(scores):
    a, b = scores
    n, s = a.shape
    tasks = np.array(list(itertools.product(range(n), repeat=n)))
    seeds = np.array(list(itertools.product(range(s), repeat=s)))
    crossed = (np.repeat(tasks, len(seeds), axis=0), np.tile(seeds, (len(tasks), 1)))
    exact = pigeonhole_tally(paired_differences(a, b), [crossed]).beyond_shift / (len(tasks) * len(seeds))
    found = compare(a, b, design="pigeonhole", test="shift2", resamples=4000, seed=5).p
    assert abs(found - exact) <= 4 * np.sqrt(exact * (1 - exact) / 4000) + 1 / 4000


@pytest.mark.parametrize("test", ["shift2", "shift1", "inversion", "signflip"])
def test_ties_of_fractions_are_ties(test):
    """0.1 + 0.2 != 0.3 in floats: scores in tenths must give the p of the same scores as integers."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.integers(0, 11, (6, 2)), rng.integers(0, 11, (6, 2))
        whole = compare(a, b, design="tasks", test=test, resamples=300)
        parts = compare(a / 10, b / 10, design="tasks", test=test, resamples=300)
        assert parts.p == whole.p
        assert parts.delta == pytest.approx(whole.delta / 10)


def test_degrees_of_freedom_are_at_least_one():
    """Runs that differ and tasks that do not: Satterthwaite gives 0.96 here, for which t has no table."""
    d = np.array([[10, 0], [8, 2], [9, 1]])
    assert compare(d, 0 * d, design="crossed", test="t").df == 1


def test_equal_seeds_give_equal_results_and_others_do_not():
    rng = np.random.default_rng(1)
    a, b = rng.random((30, 2)), rng.random((30, 2))
    first = compare(a, b, design="tasks", test="shift2", seed=1)
    assert compare(a, b, design="tasks", test="shift2", seed=1) == first
    assert compare(a, b, design="tasks", test="shift2", seed=2).interval != first.interval


def test_blocks_do_not_change_the_draw(monkeypatch):
    """Memory is bounded by drawing in blocks; the stream of indices must not depend on their size."""
    whole = np.concatenate(list(draw(np.random.default_rng(0), 7, 100)))
    monkeypatch.setattr("results.statistics.bootstrap._BLOCK_CELLS", 7 * 9)
    parts = list(draw(np.random.default_rng(0), 7, 100))
    assert len(parts) > 1
    assert np.array_equal(np.concatenate(parts), whole)


class TestGroups:
    def test_whole_groups_are_resampled(self):
        """Ten copies of four tasks are four tasks: p, interval and error stay what they were."""
        a, b = np.array([[1, 1], [1, 0], [0, 1], [1, 1]]), np.array([[0, 1], [0, 0], [1, 1], [0, 0]])
        few = compare(a, b, design="tasks", test="shift2", resamples=B)
        groups = [task for task in range(4) for _ in range(10)]
        many = compare(
            np.repeat(a, 10, 0), np.repeat(b, 10, 0), design="tasks", test="shift2", resamples=B, groups=groups
        )
        assert (many.p, many.interval) == (few.p, pytest.approx(few.interval))
        assert many.se == pytest.approx(few.se)
        assert (many.n_tasks, many.n_clusters) == (40, 4)

    def test_groups_of_unequal_size_keep_the_mean_over_tasks(self):
        """The resampled mean divides by the tasks drawn, not by a fixed number."""
        a = np.array([[1], [1], [1], [0]])
        found = compare(a, np.zeros((4, 1)), design="tasks", test="shift2", groups=["x", "x", "x", None], resamples=B)
        assert found.delta == 0.75
        assert found.interval == (0, 1)

    def test_sign_flip_and_t_use_groups(self):
        a = np.array([[1], [1], [1], [1], [0], [1]])
        groups = [0, 0, 1, 1, 2, 2]
        assert compare(a, 0 * a, design="tasks", test="signflip", groups=groups).p == 2 / 8
        found = compare(a, 0 * a, design="tasks", test="t", groups=groups)
        assert found.df == 2
        assert found.p == pytest.approx(compare([[2], [2], [1]], [[0]] * 3, design="tasks", test="t").p)

    @pytest.mark.parametrize(("design", "test"), [("crossed", "t"), ("pigeonhole", "shift2")])
    def test_crossed_designs_refuse_shared_groups(self, design, test):
        with pytest.raises(ValueError, match="2 groups"):
            compare(np.eye(3), np.zeros((3, 3)), design=design, test=test, groups=["x", "x", "y"])

    def test_distinct_groups_are_no_groups(self):
        a, b = np.eye(3), np.zeros((3, 3))
        assert compare(a, b, design="crossed", test="t", groups=["x", "y", "z"]).p == pytest.approx(
            compare(a, b, design="crossed", test="t").p
        )

    def test_mcnemar_refuses_shared_groups(self):
        with pytest.raises(ValueError, match="share a group"):
            compare([[1], [0], [1]], [[0], [0], [0]], design="tasks", test="mcnemar", groups=["x", "x", "y"])

    def test_one_group_a_task(self):
        with pytest.raises(ValueError, match="2 groups for 3 tasks"):
            compare(np.eye(3), np.eye(3), design="tasks", test="t", groups=["x", "y"])


class TestSignFlip:
    def test_is_exact_up_to_twenty_clusters_that_differ(self):
        a = np.ones((20, 1))
        found = compare(np.vstack([a, np.zeros((9, 1))]), np.zeros((29, 1)), design="tasks", test="signflip")
        assert (found.p, found.exact) == (2 / 2**20, True)

    def test_is_monte_carlo_beyond(self):
        found = compare(np.ones((21, 1)), np.zeros((21, 1)), design="tasks", test="signflip", resamples=999)
        assert (found.p, found.exact) == (1 / 1000, False)

    def test_monte_carlo_agrees_with_enumeration(self, monkeypatch):
        rng = np.random.default_rng(4)
        a, b = rng.integers(0, 2, (12, 3)), rng.integers(0, 2, (12, 3))
        exact = compare(a, b, design="tasks", test="signflip").p
        monkeypatch.setattr("results.statistics.permutation.EXACT_CLUSTERS", 3)
        found = compare(a, b, design="tasks", test="signflip", resamples=5000).p
        assert abs(found - exact) < 4 * np.sqrt(exact * (1 - exact) / 5000) + 1 / 5000


class TestRefusals:
    @pytest.mark.parametrize(
        ("design", "test"),
        [("crossed", "shift2"), ("pigeonhole", "t"), ("pigeonhole", "shift1"), ("crossed", "mcnemar")],
    )
    def test_pairs_that_mean_nothing(self, design, test):
        with pytest.raises(ValueError, match=f"{design}.*{test}"):
            compare(np.eye(3), np.eye(3), design=design, test=test)

    def test_unknown_names(self):
        with pytest.raises(ValueError, match="unknown design 'nested'"):
            compare(np.eye(3), np.eye(3), design="nested", test="t")
        with pytest.raises(ValueError, match="no test 'wilcoxon'"):
            compare(np.eye(3), np.eye(3), design="tasks", test="wilcoxon")

    def test_different_shapes(self):
        with pytest.raises(ValueError, match=r"a has shape \(3, 3\) and b has shape \(3, 2\)"):
            compare(np.eye(3), np.ones((3, 2)), design="tasks", test="t")

    def test_one_dimension(self):
        with pytest.raises(ValueError, match=r"\[tasks, seeds\]"):
            compare([1, 0, 1], [0, 0, 1], design="tasks", test="t")

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_values_that_are_not_finite_are_named(self, value):
        b = np.zeros((3, 2))
        b[2, 1] = value
        with pytest.raises(ValueError, match=r"b\[task 2, seed 1\]"):
            compare(np.ones((3, 2)), b, design="tasks", test="t")

    @pytest.mark.parametrize(("design", "test"), [("crossed", "t"), ("pigeonhole", "inversion")])
    def test_one_seed_says_nothing_about_runs(self, design, test):
        with pytest.raises(ValueError, match="at least 2 seeds"):
            compare(np.ones((3, 1)), np.zeros((3, 1)), design=design, test=test)

    def test_one_task(self):
        """A bootstrap of one task would call any difference certain: p = 1 / (B + 1)."""
        with pytest.raises(ValueError, match="two are the least"):
            compare([[1, 1]], [[0, 0]], design="tasks", test="shift2")

    def test_mcnemar_wants_one_seed_and_successes(self):
        with pytest.raises(ValueError, match="one seed"):
            compare(np.eye(3), np.zeros((3, 3)), design="tasks", test="mcnemar")
        with pytest.raises(ValueError, match=r"a holds 0\.5"):
            compare([[0.5], [1]], [[0], [0]], design="tasks", test="mcnemar")

    def test_no_resamples(self):
        with pytest.raises(ValueError, match="resamples"):
            compare(np.eye(3), np.eye(3), design="tasks", test="shift2", resamples=0)


class TestHolm:
    def test_is_monotone_capped_and_in_the_order_given(self):
        assert holm([0.5, 0.01, 0.6]).tolist() == [1.0, 0.03, 1.0]
        assert holm([]).tolist() == []

    @pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
    def test_refuses_what_is_no_p_value(self, p):
        with pytest.raises(ValueError, match="not a p-value"):
            holm([0.5, p])

    def test_fills_in_a_family(self):
        family = [compare(np.eye(4)[:, :n], np.zeros((4, n)), design="tasks", test="t") for n in (2, 3)]
        adjusted = with_holm(family)
        assert [c.p_holm for c in adjusted] == pytest.approx(list(holm([c.p for c in family])))
        assert [c.p for c in adjusted] == [c.p for c in family]


def test_torch_tensors_are_scores_too():
    torch = pytest.importorskip("torch")
    a, b = np.eye(3), np.zeros((3, 3))
    found = compare(torch.tensor(a), torch.tensor(b), design="tasks", test="shift2", resamples=B)
    assert found == compare(a, b, design="tasks", test="shift2", resamples=B)


def test_the_clustered_error_of_seeds_that_disagree_is_smaller_than_of_seeds_that_agree():
    agree = np.array([[1, 1], [0, 0], [1, 1], [0, 0]])
    disagree = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])
    assert cluster_se(disagree) == 0 < cluster_se(agree)
