"""One small table, made of rows by arithmetic: `python -m tests.reports.example` writes the golden files anew."""

from pathlib import Path

from reports.compare import render_comparison
from reports.render import render
from reports.spec import load_spec
from reports.tables import RunRows, Table, build_table
from results.compare import compare_runs
from results.papers import published
from tests.results.rows import make_row

GOLDEN = Path(__file__).parent / "golden"
FORMATS = {"terminal": "webshop.txt", "markdown": "webshop.md", "csv": "webshop.csv", "latex": "webshop.tex"}
SUCCESSES_OF_TEN = {"vanilla": 1, "grpo": 4, "strata": 8}
COUPLING = {"vanilla": "independent", "grpo": "trained", "strata": "trained"}
BIG = "Qwen2.5-7B-Instruct"


def rows(method, *, tasks=30, seeds=3, **fields):
    """Rows of one method: k of ten tasks succeed, which ones moves with the seed; one in seven flips."""
    found = []
    for task in range(tasks):
        for seed in range(seeds):
            success = (3 * task + seed) % 10 < SUCCESSES_OF_TEN[method]
            success ^= (task * task + seed * 5 + len(method)) % 7 == 0
            subset = "Pick" if task % 3 else "Look"
            values = {"task": f"goal-{task:02}", "seed": seed, "success": success, "subset": subset} | fields
            found.append(make_row(method=method, score=1.0 if success else 0.25, **values))
    return found


def run(method, *, fields=None, tasks=30, seeds=3, **options):
    made = rows(method, tasks=tasks, seeds=seeds, **(fields or {}))
    return RunRows(f"{method}-webshop-0011aabb", method, COUPLING[method], made, **options)


def example_table() -> Table:
    runs = [
        run("vanilla", starting_policy="webshop-mini-1"),
        run("grpo", starting_policy="webshop-mini-1"),
        run("strata", comparable=True, backbone=BIG),
    ]
    return build_table(load_spec("webshop"), runs, published("strata"))


def example_comparison(**options) -> str:
    found = compare_runs(
        rows("strata"), rows("grpo"), coupling_a="trained", coupling_b="trained", metrics=("success", "score")
    )
    return render_comparison("strata", "grpo", found, **options)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for fmt, name in FORMATS.items():
        (GOLDEN / name).write_text(render(example_table(), fmt), encoding="utf-8")
    (GOLDEN / "compare.txt").write_text(example_comparison(), encoding="utf-8")
