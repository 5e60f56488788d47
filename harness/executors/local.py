"""Local execution: one process a worker, each computing with one thread.

Work comes in units: a whole training seed, or a lane of a method that does not learn. Units do not share anything, so
the number of workers changes when rows are written and nothing else. One worker runs in this process.

However a run ends (an error, Ctrl-C, SIGTERM), what is at work is interrupted as Ctrl-C would, so that it can close
its environments; a worker that is still there GRACE_SECONDS later is ended.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, Generic, TypeVar

from harness.errors import RunError

U = TypeVar("U")
E = TypeVar("E")
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0

Work = Callable[[U, Callable[[E], None]], None]
"""Does one unit and tells what happens (events, picklable as it is); made once and kept by each worker."""


def execute(units: Sequence[U], work: Work[U, E], *, workers: int, listen: Callable[[E], None]) -> None:
    """Do all units, at most `workers` at a time. Meanwhile SIGTERM does what Ctrl-C does, as schedulers send it first.

    Raises:
        Whatever a unit raised first; units that had not begun are dropped, those at work are stopped.
        RunError: a worker process died.
        KeyboardInterrupt: Ctrl-C or SIGTERM.
    """
    with _interrupts() as interrupts:

        def told(event: E) -> None:
            interrupts.check()
            listen(event)

        if workers == 1 or len(units) <= 1:
            one_thread()
            for unit in units:
                work(unit, told)
            return
        _Pool(work, min(workers, len(units)), told, interrupts).run(units)


class _Interrupts:
    """Ctrl-C and SIGTERM, remembered.

    Python raises KeyboardInterrupt between any two instructions of the main thread, also inside a finaliser or a
    weak reference's callback, which print it and drop it; an event loop runs many of those. So the request is kept,
    and raised again at the next event.
    """

    def __init__(self) -> None:
        self.asked = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _interrupts() -> Iterator[_Interrupts]:
    """Handlers in the main thread, which alone may set them; those of before come back."""
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, interrupts.handle) for number in numbers}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def one_thread() -> None:
    """Compute with one thread: results must not depend on how many cores there are."""
    import torch

    torch.set_num_threads(1)


class _Pool(Generic[U, E]):
    """A process pool whose workers report events and die with their parent."""

    def __init__(
        self, work: Work[U, E], workers: int, listen: Callable[[E], None], interrupts: _Interrupts
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.listen, self.interrupts = listen, interrupts
        self.events: Any = context.Queue()
        # Workers block on the other end of this pipe and stop when it closes: by us, or by the kernel when we are
        # killed. A worker that outlived its run would write rows beside those of the next one.
        self.ours, self.theirs = context.Pipe()
        self.pool = ProcessPoolExecutor(workers, context, _begin, (work, self.events, self.theirs))

    def run(self, units: Sequence[U]) -> None:
        futures: set[Future[None]] = {self.pool.submit(_do, unit) for unit in units}
        try:
            while futures:
                done, futures = wait(futures, POLL_SECONDS, FIRST_COMPLETED)
                self.interrupts.check()
                self.drain()
                for future in done:
                    future.result()
        except BrokenProcessPool as error:
            raise RunError("a worker process died (out of memory, or killed); the same command resumes") from error
        finally:
            if futures:  # an error or Ctrl-C: what is at work stops now, its finished rows are on the disk
                self.ours.close()
            self.pool.shutdown(wait=True, cancel_futures=True)
            if not self.interrupts.asked:
                self.drain()
            self.ours.close()
            self.theirs.close()

    def drain(self) -> None:
        """Pass on what the workers have told so far."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.listen(self.events.get_nowait())


_work: Work[Any, Any]
_events: Any
_at_work = False


def _begin(work: Work[Any, Any], events: Any, lifeline: Connection) -> None:
    """Set up a worker process."""
    global _work, _events
    _work, _events = work, events
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; who is to stop is the parent's say
    signal.signal(signal.SIGTERM, _stop)
    one_thread()
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()


def _die_with_parent(lifeline: Connection) -> None:
    try:
        lifeline.recv()
    except (EOFError, OSError):
        # a signal, and not `interrupt_main` alone: the main thread may sleep in a call that only a signal wakes
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        os._exit(1)


def _stop(number: int, frame: FrameType | None) -> None:
    """Interrupt the unit at work, once: its `finally` blocks run and are not interrupted in turn."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not _at_work:
        os._exit(1)
    raise KeyboardInterrupt


def _do(unit: Any) -> None:
    global _at_work
    try:
        _at_work = True
        _work(unit, _events.put)
    except KeyboardInterrupt:
        os._exit(1)  # the pool would take it for a result and send the next unit
    finally:
        _at_work = False
