"""The published numbers, spot-checked against the paper's own pages (StraTA, arXiv 2605.06642v1)."""

from collections import Counter

import pytest

from results.papers import about, papers, published


def test_all_cells_are_there():
    cells = published("strata")
    assert len(cells) == 350
    assert Counter(cell.certainty for cell in cells)["uncertain"] == 9
    assert {cell.source for cell in cells if cell.quoted} == {
        "dagger:GiGPO arXiv 2505.10978",
        "dagger:AgentGym-RL arXiv 2509.08755",
    }


@pytest.mark.parametrize(
    ("method", "metric", "backbone", "printed"),
    [
        ("strata", "score", "Qwen2.5-7B-Instruct", (91.2, 0.3)),
        ("strata", "success", "Qwen2.5-7B-Instruct", (84.2, 0.3)),
        ("grpo", "success", "Qwen2.5-1.5B-Instruct", (62.2, 1.2)),
        ("vanilla", "score", "qwen2.5-1.5b-instruct", (20.2, 0.7)),
    ],
)
def test_table_1_webshop(method, metric, backbone, printed):
    (cell,) = published("strata", env="webshop", method=method, metric=metric, table="Table 1", backbone=backbone)
    assert (cell.mean, cell.std) == printed
    assert not cell.quoted


def test_alfworld_rows_are_weighted_means_of_their_columns():
    """A transcription error would show: All = sum(n_i p_i) / 140 over its six task types (own rows)."""
    sizes = {"Pick": 35, "Look": 13, "Clean": 27, "Heat": 16, "Cool": 25, "Pick2": 24}
    cells = [c for c in published("strata", env="alfworld") if not c.quoted and c.unit == "percent"]
    rows = Counter((c.table, c.backbone, c.method, c.variant) for c in cells)
    assert len(rows) > 20
    for row in rows:
        line = {c.subset: c.mean for c in cells if (c.table, c.backbone, c.method, c.variant) == row}
        assert sum(sizes[s] * line[s] for s in sizes) / 140 == pytest.approx(line["All"], abs=0.1), row


def test_a_quoted_success_rate_is_no_score():
    """StraTA Table 2 puts AgentGym-RL's binary successes into its score column."""
    quoted = published("strata", env="sciworld", method="agentgym-rl")
    assert len(quoted) == 6
    assert published("strata", env="sciworld", method="agentgym-rl", metric="score") == []
    assert published("strata", env="sciworld", method="agentgym-rl", metric="success") == quoted


def test_what_a_paper_does_not_have_is_an_empty_list():
    assert published("strata", method="awm") == []


def test_an_unknown_paper():
    with pytest.raises(ValueError, match=r"'strta' are stored; stored: .*strata"):
        published("strta")


def test_the_paper_is_cited():
    assert "strata" in papers()
    assert (about("strata").arxiv, about("strata").seeds) == ("2605.06642v1", 3)
