"""Local workers: order, errors, deaths, and that nobody outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.errors import RunError
from harness.events import Event, Notice
from harness.executors.local import execute

ROOT = Path(__file__).parents[2]
UNITS = ["a", "b", "fail", "d"]


@dataclass
class Worker:
    """Notes what it did in a folder, and ends as the unit's name says."""

    folder: Path

    def __call__(self, unit: str, listen: Callable[[Event], None]) -> None:
        (self.folder / unit).write_text(f"{os.getpid()}")
        listen(Notice(unit))
        if unit == "fail":
            raise ValueError("unit fail failed")
        if unit == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if unit.startswith("long"):
            time.sleep(60)


def alive(pid: int) -> bool:
    """Whether a process still runs (a zombie that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> bool:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


def test_one_worker_is_this_process_and_keeps_the_order(tmp_path):
    told: list[Event] = []
    execute(["b", "a"], Worker(tmp_path), workers=1, listen=told.append)
    assert told == [Notice("b"), Notice("a")]
    assert (tmp_path / "a").read_text() == f"{os.getpid()}"


def test_a_single_unit_needs_no_second_process(tmp_path):
    execute(["a"], Worker(tmp_path), workers=4, listen=lambda event: None)
    assert (tmp_path / "a").read_text() == f"{os.getpid()}"
    execute([], Worker(tmp_path), workers=4, listen=lambda event: None)


def test_an_error_of_a_unit_ends_the_run_with_that_error(tmp_path):
    with pytest.raises(ValueError, match="unit fail failed"):
        execute(UNITS, Worker(tmp_path), workers=1, listen=lambda event: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "fail"]


@pytest.mark.slow
def test_several_workers_do_every_unit_once_and_tell(tmp_path):
    told: list[Event] = []
    execute(list("abcdef"), Worker(tmp_path), workers=2, listen=told.append)
    assert sorted(event.text for event in told) == list("abcdef")
    pids = {path.read_text() for path in tmp_path.iterdir()}
    assert f"{os.getpid()}" not in pids
    assert not any(alive(int(pid)) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize(("last", "error"), [("fail", ValueError), ("die", RunError)])
def test_when_one_worker_fails_the_others_stop(tmp_path, last, error):
    started = time.monotonic()
    with pytest.raises(error, match=r"failed|a worker process died .* the same command resumes"):
        execute(["long 1", last, "long 2"], Worker(tmp_path), workers=2, listen=lambda event: None)
    assert time.monotonic() - started < 50, "nobody waited for the long one"
    assert not any(alive(int(path.read_text())) for path in tmp_path.iterdir())


def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    """One that outlived its run would write rows beside those of the next one."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from harness.executors.local import execute\n"
        "from tests.executors.test_local import Worker\n"
        "if __name__ == '__main__':\n"
        "    execute(['long 1', 'long 2'], Worker(Path(sys.argv[1])), workers=2, listen=lambda event: None)\n"
    )
    script = tmp_path / "main.py"
    script.write_text(program)
    notes = tmp_path / "notes"
    notes.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, str(script), str(notes)], env=environment, cwd=tmp_path)
    try:
        assert wait_until(lambda: len(list(notes.iterdir())) == 2, 120), "both workers are at work"
        assert wait_until(lambda: all(path.read_text() for path in notes.iterdir()))
        pids = [int(path.read_text()) for path in notes.iterdir()]
        assert all(alive(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 10)


def test_computing_uses_one_thread(tmp_path):
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        execute(["a"], Worker(tmp_path), workers=1, listen=lambda event: None)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
