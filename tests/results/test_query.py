"""Rows in SQL."""

import pytest

from results.query import connect, to_parquet
from results.store import CorruptRow, RowWriter, RunFolder
from tests.results.rows import failed_row, make_row


@pytest.fixture
def store(tmp_path):
    for method, success in (("grpo", True), ("strata", False)):
        with RowWriter(RunFolder(tmp_path / method).rows) as writer:
            writer.write(failed_row(method=method, task="t1"))
            writer.write(make_row(method=method, task="t1", success=success, attempt=2))
            writer.write(failed_row(method=method, task="t2"))
    return tmp_path


def test_the_view_holds_all_runs_and_the_last_row_of_a_key(store):
    found = connect(store).execute(
        "SELECT method, avg(success::INT), count(*), count(score), max(attempt) FROM rows GROUP BY ALL ORDER BY method"
    )
    assert found.fetchall() == [("grpo", 1.0, 2, 1, 2), ("strata", 0.0, 2, 1, 2)]


def test_columns_keep_their_type_when_all_are_null(store):
    types = dict(connect(store).execute("SELECT column_name, column_type FROM (DESCRIBE rows)").fetchall())
    assert (types["cost"], types["group"], types["success"], types["schema"]) == (
        "DOUBLE",
        "VARCHAR",
        "BOOLEAN",
        "BIGINT",
    )


def test_parquet(store):
    import duckdb

    out = store / "export" / "rows.parquet"
    assert to_parquet([store / "grpo", store / "strata"], out) == 4
    assert duckdb.sql(f"SELECT sum(steps) FROM '{out}'").fetchall() == [(20,)]
    assert [p.name for p in out.parent.iterdir()] == [out.name]


def test_an_empty_store(tmp_path):
    assert connect(tmp_path).execute("SELECT count(*) FROM rows").fetchall() == [(0,)]


def test_damage_is_not_skipped(store):
    (store / "grpo" / "rows.jsonl").write_text("{}\n")
    with pytest.raises(CorruptRow, match=r"rows\.jsonl:1"):
        connect(store)
