"""One run, one writer."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import InputError, RunError
from harness.lock import make_folder, run_lock

HOLD = """
import sys, pathlib
from harness.lock import run_lock
with run_lock(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_the_holder_is_named_by_process_and_host(tmp_path):
    pid, host = os.getpid(), socket.gethostname()
    with run_lock(tmp_path):
        assert json.loads((tmp_path / "run.lock.json").read_text()) == {"pid": pid, "host": host}
        with pytest.raises(InputError, match=f"{tmp_path}.*process {pid} on {host}"), run_lock(tmp_path):
            pass
    with run_lock(tmp_path):
        pass
    assert not (tmp_path / "run.lock.json").exists()


def test_a_holder_that_was_killed_does_not_block(tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(InputError, match=f"process {holder.pid}"), run_lock(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with run_lock(tmp_path):
        pass


def test_the_lock_is_freed_when_the_run_fails(tmp_path):
    with pytest.raises(KeyError), run_lock(tmp_path):
        raise KeyError
    with run_lock(tmp_path):
        pass


def test_a_note_that_cannot_be_read_does_not_hide_the_refusal(tmp_path):
    with run_lock(tmp_path):
        (tmp_path / "run.lock.json").write_text("{")
        with pytest.raises(InputError, match="process unknown"), run_lock(tmp_path):
            pass


def test_a_folder_that_cannot_be_written_says_so():
    with pytest.raises(InputError, match=r'cannot write to "/proc/x".*--out'):
        make_folder(Path("/proc/x"))


def test_a_file_in_the_place_of_the_folder_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write to"):
        make_folder(tmp_path / "file" / "run")


def test_a_full_disk_is_not_the_users_mistake(monkeypatch, tmp_path):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunError, match="disk is full"):
        make_folder(tmp_path)
