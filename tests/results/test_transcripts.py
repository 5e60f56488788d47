"""A transcript file is whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from results.store import StoreError
from results.transcripts import read_transcripts, write_transcripts

EPISODES = [{"task": "goal-1", "turns": [{"prompt": "buy a “mug”\n" * 200, "text": "click[b1]"}]}, {"task": "goal-2"}]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "seed-0" / "lane-0.jsonl.zst"
    write_transcripts(path, iter(EPISODES))
    assert list(read_transcripts(path)) == EPISODES
    assert path.stat().st_size < 500, "repeated prompts compress"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_lane_run_again_replaces_its_file_and_equal_content_gives_equal_bytes(tmp_path):
    path = tmp_path / "lane.zst"
    write_transcripts(path, EPISODES)
    first = path.read_bytes()
    write_transcripts(path, EPISODES[:1])
    assert list(read_transcripts(path)) == EPISODES[:1]
    write_transcripts(path, EPISODES)
    assert path.read_bytes() == first


def test_a_failure_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "lane.zst"
    write_transcripts(path, EPISODES)

    def breaks():
        yield EPISODES[0]
        raise RuntimeError("rollout failed")

    with pytest.raises(RuntimeError, match="rollout failed"):
        write_transcripts(path, breaks())
    assert list(read_transcripts(path)) == EPISODES
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        write_transcripts(tmp_path / "lane.zst", EPISODES)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_said(tmp_path):
    path = tmp_path / "lane.zst"
    path.write_bytes(b"no zstd")
    with pytest.raises(StoreError, match="damaged"):
        list(read_transcripts(path))


def test_a_cut_file_is_said(tmp_path):
    path = tmp_path / "lane.zst"
    write_transcripts(path, [{"noise": os.urandom(4000).hex()} for _ in range(50)])
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(StoreError, match="damaged"):
        list(read_transcripts(path))


def test_no_file():
    with pytest.raises(StoreError, match="no transcripts"):
        list(read_transcripts(Path("nowhere.zst")))
