"""Numbers with a known answer, computed independently of this code; tests/vectors/stats.json says from what.

golden_6x3, V4, V5: all resamples enumerated. V1: Darwin's maize (Fisher 1935, section 21; R HistData ZeaMays). V6:
statsmodels' clustered covariance. V7: statsmodels. V8: McNemar, Agresti's approval table.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from results.statistics import cluster_se, compare, holm
from results.statistics.bootstrap import cluster_tally, pigeonhole_se, pigeonhole_tally
from results.statistics.differences import paired_differences

STATS = json.loads((Path(__file__).parents[2] / "vectors" / "stats.json").read_text())
GOLDEN = STATS["golden_6x3"]
VECTORS = STATS["vectors"]
A, B = np.array(GOLDEN["A"]), np.array(GOLDEN["B"])


def every_index_vector(n):
    """All n^n resamples of n things, as one block."""
    return np.array(list(itertools.product(range(n), repeat=n)))


@pytest.fixture(scope="module")
def golden_tally():
    return cluster_tally(paired_differences(A, B), [every_index_vector(6)])


class TestGolden:
    """Six tasks, three seeds, successes."""

    def test_delta_and_counts(self):
        found = compare(A, B, design="tasks", test="t")
        assert found.delta == pytest.approx(4 / 18)
        assert (found.n_tasks, found.n_seeds, found.n_discordant) == (6, 3, 8)
        assert found.p_holm is None

    def test_all_resamples_are_counted_exactly(self, golden_tally):
        """Every tie counts: strict comparison gives p = .017 where .057 is right."""
        exact = GOLDEN["cluster_exact"]
        assert len(golden_tally.means) == exact["resamples"]
        assert golden_tally.beyond_shift == exact["n_abs_shift_ge"]
        assert golden_tally.beyond_double == exact["n_ge_2t"]
        assert golden_tally.at_most_zero == exact["n_le0"]
        assert golden_tally.at_least_zero == exact["n_ge0"]

    def test_exhaustive_spread_is_the_clustered_error(self, golden_tally):
        assert golden_tally.means.std() == pytest.approx(GOLDEN["cluster_exact"]["se"], abs=1e-12)
        assert cluster_se(A - B) == pytest.approx(GOLDEN["clustered_se_miller"], abs=1e-12)
        assert compare(A, B, design="tasks", test="shift2").se == pytest.approx(GOLDEN["clustered_se_miller"])

    def test_percentile_interval(self, golden_tally):
        expected = pytest.approx(GOLDEN["cluster_exact"]["pct95_linear"])
        assert golden_tally.interval == expected
        assert compare(A, B, design="tasks", test="shift2").interval == expected

    @pytest.mark.parametrize(
        ("test", "exact"),
        [
            ("shift2", "p_shift_two_sided"),
            ("shift1", "p_BergKirkpatrick_one_sided_ge"),
            ("inversion", "p_inversion_two_sided"),
        ],
    )
    def test_monte_carlo_is_near_the_exact_p(self, test, exact):
        p = GOLDEN["cluster_exact"][exact]
        assert abs(compare(A, B, design="tasks", test=test).p - p) < 4 * np.sqrt(p * (1 - p) / 10_000) + 2e-4

    def test_seeded_monte_carlo_count(self):
        """9999 resamples of numpy.random.default_rng(0): 1309 beyond the shift, so p = 1310 / 10000."""
        expected = GOLDEN["mc_B9999_seed0"]
        found = compare(A, B, design="tasks", test="shift2", resamples=9999, seed=0)
        assert found.p == pytest.approx((1 + expected["n_abs_shift_ge"]) / 10_000) == expected["p_plus1"]

    def test_t_on_task_means(self):
        found = compare(A, B, design="tasks", test="t")
        t, p = GOLDEN["t_on_task_means"]
        assert found.p == pytest.approx(p, abs=1e-12)
        corrected = GOLDEN["clustered_se_corrected"]
        assert found.delta / corrected == pytest.approx(t)
        assert found.df == 5
        half = 2.570581835636314 * corrected  # t(.975, 5), from tables
        assert found.interval == pytest.approx((found.delta - half, found.delta + half))

    def test_sign_flip_over_tasks_and_over_seeds(self):
        count, total = GOLDEN["signflip_exact_two_sided"]
        assert compare(A, B, design="tasks", test="signflip").p == count / total
        count, total = GOLDEN["signflip_seeds_exact"]
        assert compare(A.T, B.T, design="tasks", test="signflip").p == count / total

    def test_mcnemar_of_one_seed(self):
        wins, losses, p = GOLDEN["mcnemar_seed0"]
        found = compare(A[:, :1], B[:, :1], design="tasks", test="mcnemar")
        assert (found.n_discordant, found.p) == (wins + losses, p)

    def test_crossed(self):
        expected = GOLDEN["crossed"]
        found = compare(A, B, design="crossed", test="t")
        assert found.se == pytest.approx(expected["se"], abs=5e-9)
        assert found.df == pytest.approx(expected["df"], abs=5e-7)
        assert found.p == pytest.approx(expected["p_two_sided"], abs=5e-7)

    def test_pigeonhole_error(self):
        found = compare(A, B, design="pigeonhole", test="shift2")
        assert found.se == pytest.approx(GOLDEN["se_pigeonhole_exact"], abs=1e-12)


def test_v1_darwin_sign_flip_and_t():
    """15 pairs of plants; all 32768 sign patterns."""
    d = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48])[:, None]
    expected = VECTORS["V1_darwin"]
    found = compare(d, 0 * d, design="tasks", test="signflip")
    assert (found.p, found.exact) == (expected["p_two"], True)
    assert found.delta == pytest.approx(expected["mean"])
    assert compare(d, 0 * d, design="tasks", test="t").p == pytest.approx(expected["t_p"], abs=1e-12)


def test_v4_all_3125_resamples():
    expected = VECTORS["V4_exhaustive"]
    d = np.array(expected["d"])[:, None]
    tally = cluster_tally(paired_differences(d, 0 * d), [every_index_vector(5)])
    assert len(tally.means) == expected["total"]
    assert tally.at_most_zero == expected["n_le0"]
    assert tally.beyond_double == expected["n_ge_2theta"]
    assert tally.beyond_shift == expected["n_abs_centred"]
    assert tally.means.std() == pytest.approx(expected["se"], abs=1e-12)
    assert tally.interval == pytest.approx(expected["pct"])


def test_v5_clusters_and_pigeonhole():
    """Four tasks, two seeds: all 256 resamples of tasks, and all 256 x 4 of tasks crossed with seeds."""
    expected = VECTORS["V5_cluster4x2"]
    differences = paired_differences(expected["A"], expected["B"])
    tally = cluster_tally(differences, [every_index_vector(4)])
    assert len(tally.means) == expected["total"]
    assert (tally.at_most_zero, tally.beyond_shift) == (expected["n_le0"], expected["n_abs_centred"])
    assert tally.means.mean() == pytest.approx(expected["theta"])
    assert tally.means.std() == pytest.approx(expected["se_cluster_exact"], abs=1e-12)

    tasks, seeds = every_index_vector(4), every_index_vector(2)
    crossed = pigeonhole_tally(differences, [(np.repeat(tasks, 4, axis=0), np.tile(seeds, (256, 1)))])
    assert crossed.means.std() == pytest.approx(expected["se_pigeonhole_exact"], abs=1e-12)
    assert pigeonhole_se(differences) == pytest.approx(expected["se_pigeonhole_exact"], abs=1e-12)


def test_v6_clustered_error_has_no_small_sample_factor():
    """statsmodels OLS(d, 1).fit(cov_type="cluster", cov_kwds={"groups": task, "use_correction": False})."""
    matrix, expected = VECTORS["V5_cluster4x2"], VECTORS["V6_miller"]
    d = np.array(matrix["A"]) - np.array(matrix["B"])
    assert cluster_se(d) == pytest.approx(expected["statsmodels_cluster_nocorr"], abs=1e-12)
    assert cluster_se(d.reshape(8, 1), groups=[0, 0, 1, 1, 2, 2, 3, 3]) == pytest.approx(expected["clustered_se"])
    assert cluster_se(d.reshape(8, 1)) == pytest.approx(expected["naive_se"] * np.sqrt(7 / 8))


def test_v7_holm():
    expected = VECTORS["V7_multi"]
    assert holm(expected["p"]) == pytest.approx(expected["holm"])


@pytest.mark.parametrize(
    ("table", "p"),
    [([[794, 86], [150, 570]], VECTORS["V8_mcnemar_agresti"]["exact"]), ([[9, 1], [7, 3]], 0.0703125)],
)
def test_v8_mcnemar(table, p):
    """Agresti's approval ratings, and a small table: exact binomial."""
    (both, only_a), (only_b, neither) = table
    a = np.repeat([1, 1, 0, 0], [both, only_a, only_b, neither])[:, None]
    b = np.repeat([1, 0, 1, 0], [both, only_a, only_b, neither])[:, None]
    assert compare(a, b, design="tasks", test="mcnemar", resamples=1).p == pytest.approx(p, rel=1e-9)
