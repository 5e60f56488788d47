"""Rows survive crashes, full disks and damaged lines, and nothing is dropped in silence."""

import errno
import json
import multiprocessing
import os
import threading

import pytest

from results.store import (
    CorruptRow,
    CutTailWarning,
    RowWriter,
    RunFolder,
    StoreError,
    read_rows,
    repair_tail,
    run_folders,
)
from tests.results.rows import failed_row, make_row


@pytest.fixture
def path(tmp_path):
    return RunFolder(tmp_path / "grpo-webshop-0011aabb").rows


def write(path, *rows):
    with RowWriter(path) as writer:
        for row in rows:
            writer.write(row)


def test_what_is_written_is_read(path):
    rows = [make_row(task="a"), failed_row(task="b")]
    write(path, rows[0])
    write(path, rows[1])
    assert read_rows(path) == rows


def test_the_last_row_of_a_key_stands(path):
    write(path, failed_row(task="a"), make_row(task="b"), make_row(task="a", attempt=2))
    assert [(row.task, row.attempt) for row in read_rows(path)] == [("b", 1), ("a", 2)]


def test_a_row_is_on_the_disk_before_write_returns(path, monkeypatch):
    calls = []
    real_write, real_fsync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append("write") or real_write(fd, data))
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync") or real_fsync(fd))
    write(path, make_row(task="a"), make_row(task="b"))
    assert calls == ["write", "fsync"] * 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_and_finished_rows_are_kept(path, monkeypatch, code):
    write(path, make_row(task="a"))

    def full(fd, data):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StoreError, match=r"disk is full.*rows.jsonl.*finished rows are kept"):
            write(path, make_row(task="b"))
    assert [row.task for row in read_rows(path)] == ["a"]
    write(path, make_row(task="b"))
    assert len(read_rows(path)) == 2


def test_half_a_row_is_taken_back(path, monkeypatch):
    """A nearly full disk takes part of the line: the next writer must not append to that part."""
    write(path, make_row(task="a"))
    before = path.read_bytes()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:30]))
        with pytest.raises(StoreError, match=r"disk is full.*30 of"):
            write(path, make_row(task="b"))
    assert path.read_bytes() == before


def test_half_a_row_stays_when_another_writer_went_on(path, monkeypatch):
    """Cutting then would cut the other's row; the damaged line is reported on reading instead."""
    real = os.write
    other = make_row(task="other").line().encode()

    def short(fd, data):
        written = real(fd, data[:30])
        with path.open("ab") as file:
            file.write(other)
        return written

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(StoreError):
            write(path, make_row(task="b"))
    assert path.read_bytes().endswith(other)
    with pytest.raises(CorruptRow, match=r"rows\.jsonl:1"):
        read_rows(path)


def test_other_write_errors_are_named(path, monkeypatch):
    def broken(fd, data):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(StoreError, match=r"could not write to .*Input/output error"):
        write(path, make_row())


def test_a_cut_line_is_reported_and_repaired(path):
    write(path, make_row(task="a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    with pytest.warns(CutTailWarning, match=r"rows\.jsonl:2: cut line of 50 bytes"):
        assert [row.task for row in read_rows(path)] == ["a"]
    assert path.read_bytes() == whole + whole[:50]

    with pytest.raises(StoreError, match="cut line"):
        RowWriter(path)

    assert "50 bytes" in repair_tail(path)
    assert path.read_bytes() == whole
    assert repair_tail(path) is None
    write(path, make_row(task="b"))
    assert len(read_rows(path)) == 2


def test_a_line_that_another_writer_is_just_finishing_is_no_cut_line(path):
    write(path, make_row(task="a"))
    line = make_row(task="b").line().encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, line[:40])
    threading.Timer(0.2, os.write, (descriptor, line[40:])).start()
    write(path, make_row(task="c"))
    os.close(descriptor)
    assert [row.task for row in read_rows(path)] == ["a", "b", "c"]


def test_opening_does_not_read_what_is_stored(path, monkeypatch):
    write(path, make_row(task="a"))
    monkeypatch.setattr(type(path), "read_bytes", lambda self: pytest.fail("the whole file was read"))
    write(path, make_row(task="b"))


def test_only_a_cut_line(path):
    path.parent.mkdir()
    path.write_bytes(b'{"run": "x"')
    repair_tail(path)
    assert read_rows(path) == []


def test_nothing_to_repair(path):
    assert repair_tail(path) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "Expecting value"),
        (b"", "Expecting value"),
        (b"\xff\xfe{}", "utf-8"),
        (b"[1, 2]", "a row is a JSON object, not list"),
        (b'{"schema": 1, "run": "x"}', "method: Field required"),
        (b'{"schema": 7}', "row schema 7 is newer"),
    ],
)
def test_any_other_bad_line_stops_with_its_place_and_nothing_is_deleted(path, line, reason):
    write(path, make_row(task="a"))
    content = path.read_bytes() + line + b"\n" + make_row(task="b").line().encode()
    path.write_bytes(content)
    with pytest.raises(CorruptRow, match=rf"rows\.jsonl:2: .*{reason}"):
        read_rows(path)
    assert path.read_bytes() == content


def test_a_score_without_a_verdict_is_a_bad_line(path):
    write(path, make_row())
    raw = json.loads(path.read_text()) | {"status": "infra_error"}
    path.write_text(json.dumps(raw) + "\n")
    with pytest.raises(CorruptRow, match="must be null, not zero"):
        read_rows(path)


def test_no_file(path):
    with pytest.raises(StoreError, match="no rows at"):
        read_rows(path)


def _append(path, worker):
    write(path, *(make_row(task=f"{worker}-{i}", subset="x" * 3000) for i in range(20)))


def test_workers_append_to_one_file(path):
    workers = [multiprocessing.get_context("spawn").Process(target=_append, args=(path, n)) for n in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_rows(path)) == 40


def test_the_layout(tmp_path):
    folder = RunFolder(tmp_path / "b")
    write(folder.rows, make_row())
    write(RunFolder(tmp_path / "a").rows, make_row())
    (tmp_path / "empty").mkdir()
    assert [found.path.name for found in run_folders(tmp_path)] == ["a", "b"]
    assert folder.transcripts(seed=1, lane=2).relative_to(folder.path).as_posix() == (
        "transcripts/seed-1/lane-2.jsonl.zst"
    )
    assert {folder.manifest.name, folder.checkpoints.name} == {"manifest.json", "checkpoints"}


def test_no_store(tmp_path):
    with pytest.raises(StoreError, match="--out"):
        run_folders(tmp_path / "nowhere")
