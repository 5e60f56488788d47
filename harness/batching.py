"""Lanes: many coroutines, one model, and batches that do not depend on timing.

Episodes are straight-line coroutines that await model calls. A lane runs a fixed chunk of them on an event loop of its
own and holds back every request to an in-process model until nothing else can happen: no coroutine is ready and no
environment call is in flight. Then all waiting requests leave as one batch, sorted by their keys. So a batch is a
function of the lane's content alone, and logits, which move by about 1e-6 with batch size and padding, are the same
in every run.

How the loop knows that nothing else can happen: an event loop asks its selector to wait (a timeout other than zero)
exactly when no callback is ready. The selector below takes that moment to let the batch go.
"""

from __future__ import annotations

import asyncio
import contextlib
import selectors
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from harness.env import InfraError
from harness.model import Model, Request
from harness.types import Completion

T = TypeVar("T")


class _IdleSelector(selectors.DefaultSelector):
    """Calls `idle` before it would wait; a true answer means that there is work again and waiting is off."""

    idle: Callable[[], bool] = staticmethod(lambda: False)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        waits = timeout is None or timeout > 0
        if waits and self.idle():
            timeout = 0
        return super().select(timeout)


@dataclass(slots=True)
class _Waiting:
    model: Model
    request: Request
    future: asyncio.Future[Completion]


@dataclass(slots=True)
class LaneCounters:
    """What a lane did, for benchmarks and tests: batches sent and requests in them."""

    batches: int = 0
    requests: int = 0
    sizes: list[int] = field(default_factory=list)


class Lane:
    """Runs coroutines whose model calls share batches.

    Args:
        remote_limit: most calls to remote models in flight at once.
    """

    def __init__(self, *, remote_limit: int = 64) -> None:
        self.counters = LaneCounters()
        self._waiting: list[_Waiting] = []
        self._in_flight = 0
        self._remote_limit = remote_limit
        self._remote: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and all that it starts to their end.

        Whatever ends it (a result, an error, Ctrl-C), no coroutine is left behind: those still waiting are cancelled,
        so that their `finally` blocks close their environments.
        """
        selector = _IdleSelector()
        selector.idle = self._send
        loop = asyncio.SelectorEventLoop(selector)
        self._loop, self._remote = loop, asyncio.Semaphore(self._remote_limit)
        try:
            return loop.run_until_complete(main)
        finally:
            self._waiting.clear()
            orphans = asyncio.all_tasks(loop)
            for task in orphans:
                task.cancel()
            while left := asyncio.all_tasks(loop):
                # a task that waited for one that Ctrl-C hit raises it once more, through the loop; it is on its way
                with contextlib.suppress(KeyboardInterrupt):
                    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            for task in orphans:
                if not task.cancelled():
                    task.exception()  # taken notice of: asyncio would complain on stderr
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            self._loop = self._remote = None

    async def ask(self, model: Model, request: Request) -> Completion:
        """One model call: batched with the lane's others in process, sent at once to a remote model.

        Raises:
            InfraError: the model failed twice.
            RuntimeError: awaited outside of this lane's `run`, where nobody would ever answer.
        """
        loop = asyncio.get_running_loop()
        if self._remote is None or loop is not self._loop:
            raise RuntimeError("this lane is not running here; await its model calls inside Lane.run of the same lane")
        if not model.in_process:
            async with self._remote:
                try:
                    return await model.complete(request.prompt, request.sampling)
                except InfraError:
                    return await model.complete(request.prompt, request.sampling)
        waiting = _Waiting(model, request, loop.create_future())
        self._waiting.append(waiting)
        return await waiting.future

    async def call(self, executor: Executor, function: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking environment call off this thread; no batch leaves while one is in flight."""
        self._in_flight += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
        finally:
            self._in_flight -= 1

    async def gather(self, coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run coroutines side by side; results and errors in input order."""
        return await asyncio.gather(*coroutines, return_exceptions=True)

    def _send(self) -> bool:
        """Let the waiting requests go as one batch per model; True when something was answered."""
        if self._in_flight or not self._waiting:
            return False
        waiting, self._waiting = self._waiting, []
        waiting = [entry for entry in waiting if not entry.future.done()]  # cancelled meanwhile
        by_model: dict[int, list[_Waiting]] = {}
        for entry in waiting:
            by_model.setdefault(id(entry.model), []).append(entry)
        for entries in sorted(by_model.values(), key=lambda group: min(entry.request.key for entry in group)):
            entries.sort(key=lambda entry: entry.request.key)
            self._answer(entries)
        return bool(waiting)

    def _answer(self, entries: Sequence[_Waiting]) -> None:
        model, requests = entries[0].model, [entry.request for entry in entries]
        self.counters.batches += 1
        self.counters.requests += len(requests)
        self.counters.sizes.append(len(requests))
        try:
            completions = _generate(model, requests)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who asked
            for entry in entries:
                entry.future.set_exception(error)
            return
        for entry, completion in zip(entries, completions, strict=True):
            entry.future.set_result(completion)


def _generate(model: Model, requests: Sequence[Request]) -> list[Completion]:
    """A batch, with one retry when the engine (not the request) failed; seeds make the retry the same call."""
    try:
        return model.generate(requests)
    except InfraError:
        return model.generate(requests)
