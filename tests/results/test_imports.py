"""`harness --help` and the readers of rows must not pay for what they do not use."""

import subprocess
import sys

HEAVY = ("pandas", "scipy", "duckdb", "torch", "rich", "jinja2", "zstandard", "matplotlib")
MODULES = (
    "results.compare",
    "results.store",
    "results.query",
    "results.transcripts",
    "results.papers",
    "reports.render",
    "reports.compare",
)


def test_nothing_heavy_is_imported_before_it_is_used():
    code = f"import sys, {', '.join(MODULES)}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
