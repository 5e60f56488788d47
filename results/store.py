"""Run folders: where things lie, and how rows are appended and read.

    <store root>/<method>-<env>-<digest>/
        manifest.json                       written once by the runner
        rows.jsonl                          one line an episode, fsynced; the truth
        transcripts/seed-0/lane-3.jsonl.zst
        checkpoints/

Rows are only ever appended. A line that cannot be read is reported, never dropped; the one exception is a last line
without its newline, which is what a killed writer leaves behind.
"""

from __future__ import annotations

import errno
import json
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from pydantic import ValidationError

from results.records import EpisodeRow, RowKey, migrate

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

TAIL_SECONDS = 1.0
"""How long a new writer waits for the end of a line that another one may be writing."""


class StoreError(RuntimeError):
    """A file of a run could not be written or found; the message names it and the way out."""


class CorruptRow(ValueError):
    """A line that is no row, as "file:line: reason". Nothing was deleted."""


class CutTailWarning(UserWarning):
    """The last line of a file has no newline; it was not read. `repair_tail` removes it."""


@dataclass(frozen=True)
class RunFolder:
    """The layout of one run's folder; creates nothing."""

    path: Path

    @property
    def rows(self) -> Path:
        return self.path / "rows.jsonl"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def transcripts(self, seed: int, lane: int) -> Path:
        return self.path / "transcripts" / f"seed-{seed}" / f"lane-{lane}.jsonl.zst"


def run_folders(store_root: Path) -> list[RunFolder]:
    """Every folder under the store root that holds rows, by name.

    Raises:
        StoreError: the store root does not exist.
    """
    if not store_root.is_dir():
        raise StoreError(f"no store at {store_root}; --out names the folder that runs were written to")
    return [RunFolder(rows.parent) for rows in sorted(store_root.glob("*/rows.jsonl"))]


class RowWriter:
    """Appends rows to a file, each by one write to the end of the file and one fsync.

    A row is on the disk when `write` returns. Several processes may append to the same file on a local disk.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, creating it and its folder.

        Another writer's line that is only half visible yet is waited for, up to TAIL_SECONDS.

        Raises:
            StoreError: the file ends in a cut line (see `repair_tail`), or cannot be opened.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            _fail(path, error)
        if not self._whole():
            os.close(self._file)
            raise StoreError(f"{path} ends in a cut line; repair it before appending (the same run command does)")

    def _whole(self) -> bool:
        """Whether the file ends in a newline, or does so soon; no more than its last byte is read."""
        limit = time.monotonic() + TAIL_SECONDS
        while (size := os.fstat(self._file).st_size) and os.pread(self._file, 1, size - 1) != b"\n":
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def write(self, row: EpisodeRow) -> None:
        """Append one row and wait until it is on the disk.

        Raises:
            StoreError: the disk is full or refused the row. Rows written before are kept and readable.
        """
        line = row.line().encode()
        try:
            written = os.write(self._file, line)
            if written < len(line):
                self._take_back(written)
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes fitted")
            os.fsync(self._file)
        except OSError as error:
            _fail(self.path, error)

    def _take_back(self, written: int) -> None:
        """Remove our own half line, unless another writer has appended after it."""
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        if os.fstat(self._file).st_size == end:
            os.ftruncate(self._file, end - written)

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_rows(path: Path) -> list[EpisodeRow]:
    """Read the rows of a run; where a key occurs twice, the later row stands.

    A last line without a newline is left out with a `CutTailWarning`. The file is not changed.

    Raises:
        StoreError: there is no such file.
        CorruptRow: any other line that is no row of a schema this package reads, as "file:line: reason".
    """
    if not path.is_file():
        raise StoreError(f"no rows at {path}; `harness list runs` shows what is stored")
    content = path.read_bytes()
    *lines, tail = content.split(b"\n")
    if tail:
        warnings.warn(f"{path}:{len(lines) + 1}: cut line of {len(tail)} bytes left out", CutTailWarning, stacklevel=2)
    rows: dict[RowKey, EpisodeRow] = {}
    for number, line in enumerate(lines, start=1):
        row = _parse(path, number, line)
        rows.pop(row.key, None)  # so that the later row also stands later in the list
        rows[row.key] = row
    return list(rows.values())


def repair_tail(path: Path) -> str | None:
    """Remove a last line without newline, as a killed writer leaves it.

    Returns:
        A notice of what was cut, or None when the file was whole (or is not there yet).
    """
    tail = _cut_tail(path)
    if not tail:
        return None
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - len(tail))
        os.fsync(file.fileno())
    return f"{path}: cut a last line of {len(tail)} bytes without newline; its episodes will be run again"


def _cut_tail(path: Path) -> bytes:
    """What stands after the last newline of a file."""
    if not path.is_file():
        return b""
    return path.read_bytes().rpartition(b"\n")[2]


def _parse(path: Path, number: int, line: bytes) -> EpisodeRow:
    try:
        return EpisodeRow.model_validate(migrate(json.loads(line.decode())))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}" for e in error.errors())
        raise CorruptRow(f"{path}:{number}: {faults}") from error
    except ValueError as error:  # JSON, UTF-8 and schema errors
        raise CorruptRow(f"{path}:{number}: {error}") from error


def _fail(path: Path, error: OSError) -> NoReturn:
    if error.errno in _DISK_FULL:
        raise StoreError(
            f"disk is full: could not write to {path} ({error.strerror}); finished rows are kept, free some space and "
            "run the same command again"
        ) from error
    raise StoreError(f"could not write to {path}: {error}; finished rows are kept") from error
