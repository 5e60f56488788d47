"""Local execution: one process a worker, each computing with one thread.

Work comes in units: a whole training seed, or a lane of a method that does not learn. Units do not share anything, so
the number of workers changes when rows are written and nothing else. One worker runs in this process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

from harness.errors import RunError
from harness.events import Event

U = TypeVar("U")
POLL_SECONDS = 0.1

Work = Callable[[U, Callable[[Event], None]], None]
"""Does one unit and tells what happens; a picklable object, made once per run and kept by each worker."""


def execute(units: Sequence[U], work: Work[U], *, workers: int, listen: Callable[[Event], None]) -> None:
    """Do all units, at most `workers` at a time.

    Raises:
        Whatever a unit raised first; units that had not begun are dropped, those at work are stopped.
        RunError: a worker process died.
    """
    if workers == 1 or len(units) <= 1:
        one_thread()
        for unit in units:
            work(unit, listen)
        return
    _Pool(work, min(workers, len(units)), listen).run(units)


def one_thread() -> None:
    """Compute with one thread: results must not depend on how many cores there are."""
    import torch

    torch.set_num_threads(1)


class _Pool(Generic[U]):
    """A process pool whose workers report events and die with their parent."""

    def __init__(self, work: Work[U], workers: int, listen: Callable[[Event], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.listen = listen
        self.events: Any = context.Queue()
        # Workers block on the other end of this pipe and exit when it closes: by us, or by the kernel when we are
        # killed. A worker that outlived its run would write rows beside those of the next one.
        self.ours, self.theirs = context.Pipe()
        self.pool = ProcessPoolExecutor(workers, context, _begin, (work, self.events, self.theirs))

    def run(self, units: Sequence[U]) -> None:
        futures: set[Future[None]] = {self.pool.submit(_do, unit) for unit in units}
        try:
            while futures:
                done, futures = wait(futures, POLL_SECONDS, FIRST_COMPLETED)
                self.drain()
                for future in done:
                    future.result()
        except BrokenProcessPool as error:
            raise RunError("a worker process died (out of memory, or killed); the same command resumes") from error
        finally:
            if futures:  # an error or Ctrl-C: what is at work stops now, its finished rows are on the disk
                self.ours.close()
            self.pool.shutdown(wait=True, cancel_futures=True)
            self.drain()
            self.ours.close()
            self.theirs.close()

    def drain(self) -> None:
        """Pass on what the workers have told so far."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.listen(self.events.get_nowait())


_work: Work[Any]
_events: Any


def _begin(work: Work[Any], events: Any, lifeline: Connection) -> None:
    """Set up a worker process."""
    global _work, _events
    _work, _events = work, events
    one_thread()
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()


def _die_with_parent(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        os._exit(1)


def _do(unit: Any) -> None:
    _work(unit, _events.put)
