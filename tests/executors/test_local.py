"""Local workers: order, errors, deaths, and that nobody outlives the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        if unit.startswith("late"):
            wait_until(lambda: any(unit.startswith("long") for unit in notes(self.folder)))
        try:
            note(self.folder, unit)
            listen(Notice(unit))
            if unit.endswith("fail"):
                raise ValueError("unit fail failed")
            if unit.endswith("die"):
                os.kill(os.getpid(), signal.SIGKILL)
            if unit.startswith("long"):
                time.sleep(60)
        finally:
            if unit.endswith("stubborn"):
                time.sleep(60)
            (self.folder / f"{unit} closed").write_text("")


def note(folder: Path, unit: str) -> None:
    """Note the process at work on a unit, whole or not at all: workers are killed at any moment."""
    draft = folder / f"{unit} draft"
    draft.write_text(f"{os.getpid()}")
    draft.rename(folder / unit)


def notes(folder: Path) -> list[str]:
    """Units that were begun."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(("closed", "draft")))


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
    assert notes(tmp_path) == ["a", "b", "fail"]


@pytest.mark.slow
def test_several_workers_do_every_unit_once_and_tell(tmp_path):
    told: list[Event] = []
    execute(list("abcdef"), Worker(tmp_path), workers=2, listen=told.append)
    assert sorted(event.text for event in told) == list("abcdef")
    pids = {(tmp_path / unit).read_text() for unit in notes(tmp_path)}
    assert f"{os.getpid()}" not in pids
    assert not any(alive(int(pid)) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize(("last", "error"), [("late fail", ValueError), ("late die", RunError)])
def test_when_one_worker_fails_the_others_stop(tmp_path, last, error):
    started = time.monotonic()
    with pytest.raises(error, match=r"failed|a worker process died .* the same command resumes"):
        execute(["long 1", last, "long 2"], Worker(tmp_path), workers=2, listen=lambda event: None)
    assert time.monotonic() - started < 50, "nobody waited for the long one"
    assert not any(alive(int((tmp_path / unit).read_text())) for unit in notes(tmp_path))
    assert all((tmp_path / f"{unit} closed").exists() for unit in notes(tmp_path) if unit != last), "worlds are closed"


@pytest.mark.slow
def test_a_worker_that_does_not_stop_is_ended(tmp_path):
    started = time.monotonic()
    with pytest.raises(ValueError, match="unit fail failed"):
        execute(["long stubborn", "late fail"], Worker(tmp_path), workers=2, listen=lambda event: None)
    assert time.monotonic() - started < 50
    assert not alive(int((tmp_path / "long stubborn").read_text()))
    assert not (tmp_path / "long stubborn closed").exists()


MAIN = """
import sys
from pathlib import Path
from harness.executors.local import execute
from tests.executors.test_local import Worker
if __name__ == "__main__":
    try:
        units = [f"long {number}" for number in range(5)]
        execute(units, Worker(Path(sys.argv[1])), workers=int(sys.argv[2]), listen=lambda event: None)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@contextmanager
def at_work(tmp_path: Path, workers: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run in a process of its own whose workers are all at work, and the folder of their notes."""
    script, folder = tmp_path / "main.py", tmp_path / "notes"
    script.write_text(MAIN)
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(folder), str(workers)]
    parent = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert wait_until(lambda: len(notes(folder)) == workers, 120), "at work"
        yield parent, folder
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_to_the_run_is_ctrl_c(tmp_path, workers):
    """A scheduler's first signal: what is at work closes its environments, and nothing else is begun."""
    with at_work(tmp_path, workers) as (parent, folder):
        begun = notes(folder)
        pids = [int((folder / unit).read_text()) for unit in begun]
        parent.terminate()
        _, told = parent.communicate(timeout=60)
    assert parent.returncode == 130
    assert told == b"", "workers die in silence"
    assert notes(folder) == begun
    assert all((folder / f"{unit} closed").exists() for unit in begun)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_workers_through_their_parent(tmp_path):
    """The terminal signals the whole group; a worker that died of it would look like one out of memory."""
    with at_work(tmp_path, 2) as (parent, folder):
        os.killpg(parent.pid, signal.SIGINT)
        _, told = parent.communicate(timeout=60)
    assert (parent.returncode, told) == (130, b"")
    assert all((folder / f"{unit} closed").exists() for unit in notes(folder))


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_the_handler_of_before_comes_back(tmp_path, before):
    kept = signal.signal(signal.SIGTERM, before)
    try:
        with pytest.raises(ValueError, match="unit fail failed"):
            execute(UNITS, Worker(tmp_path), workers=1, listen=lambda event: None)
        assert signal.getsignal(signal.SIGTERM) is before
        elsewhere = threading.Thread(
            target=execute, args=(["a"], Worker(tmp_path)), kwargs={"workers": 1, "listen": print}
        )
        elsewhere.start()
        elsewhere.join()
        assert signal.getsignal(signal.SIGTERM) is before, "only the main thread may set one"
    finally:
        signal.signal(signal.SIGTERM, kept)


def test_workers_die_with_a_parent_that_is_killed(tmp_path):
    """One that outlived its run would write rows beside those of the next one."""
    with at_work(tmp_path, 2) as (parent, folder):
        pids = [int((folder / unit).read_text()) for unit in notes(folder)]
        assert all(alive(pid) for pid in pids)
        parent.kill()
        assert wait_until(lambda: not any(alive(pid) for pid in pids), 10)
    assert len(pids) == 2
    assert all((folder / f"{unit} closed").exists() for unit in notes(folder))


def test_computing_uses_one_thread(tmp_path):
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        execute(["a"], Worker(tmp_path), workers=1, listen=lambda event: None)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


class Swallowed:
    """A unit during which Ctrl-C arrives inside a finaliser, where Python prints the KeyboardInterrupt and drops it."""

    def __call__(self, unit: int, listen) -> None:
        class Dying:
            def __del__(self) -> None:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)

        Dying()
        listen(Notice("after the finaliser"))
        raise AssertionError("the interrupt was lost")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_a_finaliser_swallows_is_not_lost():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        execute([1], Swallowed(), workers=1, listen=lambda event: None)
    assert signal.getsignal(signal.SIGINT) is before
