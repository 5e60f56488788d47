"""Rows of many runs as one table: a DuckDB view for questions in SQL, and Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from results.records import EpisodeRow
from results.store import RunFolder, read_rows, run_folders

if TYPE_CHECKING:
    import duckdb

_TYPES = {
    "seed": "BIGINT",
    "iteration": "BIGINT",
    "steps": "BIGINT",
    "tokens_in": "BIGINT",
    "tokens_out": "BIGINT",
    "tokens_cached": "BIGINT",
    "attempt": "BIGINT",
    "schema": "BIGINT",
    "score": "DOUBLE",
    "reward": "DOUBLE",
    "cost": "DOUBLE",
    "wall_time": "DOUBLE",
    "success": "BOOLEAN",
    "deterministic": "BOOLEAN",
    "drift": "BOOLEAN",
}
"""Types of the columns that are no text; stated, since a column of nulls has none to infer."""


def connect(store_root: Path) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in memory with a view `rows` over all runs under the store root.

    The view holds what `read_rows` returns: old schemas migrated, the last row of each key; columns are the fields of
    `EpisodeRow`, by their names in the file.

    Raises:
        StoreError, CorruptRow: as `read_rows`.
    """
    return _load(run_folders(store_root))


def to_parquet(run_dirs: Iterable[Path], out: Path) -> int:
    """Write the rows of some runs to one Parquet file and return how many there are.

    Raises:
        StoreError, CorruptRow: as `read_rows`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(out.name + ".tmp")
    with _load(RunFolder(path) for path in run_dirs) as connection:
        view = connection.table("rows")
        view.write_parquet(str(temporary))
        count = len(view)
    temporary.replace(out)
    return count


def _load(folders: Iterable[RunFolder]) -> duckdb.DuckDBPyConnection:
    """Rows go through one file of JSON lines: DuckDB's own reader needs neither pandas nor pyarrow."""
    import duckdb

    columns = {name: _TYPES.get(name, "VARCHAR") for name in _columns()}
    connection = duckdb.connect(":memory:")
    with TemporaryDirectory() as scratch:
        lines = Path(scratch) / "rows.jsonl"
        with lines.open("w", encoding="utf-8") as file:
            file.writelines(row.line() for folder in folders for row in read_rows(folder.rows))
        connection.read_json(str(lines), columns=columns, format="newline_delimited").create("stored_rows")
    connection.execute("CREATE VIEW rows AS SELECT * FROM stored_rows")
    return connection


def _columns() -> list[str]:
    return [field.alias or name for name, field in EpisodeRow.model_fields.items()]
