"""Progress of a run for whoever watches: a live table in a terminal, now and then a line anywhere else."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from harness.events import EpisodeDone, Event, Finished, IterationDone, Notice, Started

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

INTERVAL = 5.0
"""Least seconds between two plain lines of one seed."""

_RECENT = 10
"""Iterations that the speed is averaged over."""


@dataclass(slots=True)
class SeedState:
    """What is known of one seed."""

    seed: int
    iteration: int = 0
    iterations: int = 0
    planned: int = 0
    played: int = 0
    judged: int = 0
    successes: int = 0
    reward: float | None = None
    success: float | None = None
    tokens_per_second: float | None = None
    finished: bool = False
    told: float = float("-inf")
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    evaluating_since: float | None = None
    played_since: int = 0

    def take(self, event: Event, now: float) -> None:
        """Learn from an event of this seed."""
        match event:
            case Started():
                self.iteration, self.iterations = event.iteration, event.iterations
                self.planned = max(self.planned, self.played + event.episodes)
            case IterationDone():
                self.iteration, self.iterations = event.iteration, event.iterations
                self.recent.append(event.seconds)
                self.success, self.reward = event.metrics.get("success"), event.metrics.get("reward")
                tokens = event.metrics.get("tokens_in", 0.0) + event.metrics.get("tokens_out", 0.0)
                self.tokens_per_second = tokens / event.seconds if tokens and event.seconds > 0 else None
                self.evaluating_since = None
            case EpisodeDone():
                if self.evaluating_since is None:
                    self.evaluating_since, self.played_since = now, self.played
                self.played += 1
                self.judged += event.success is not None
                self.successes += bool(event.success)
            case Finished():
                self.finished = True
            case Notice():
                raise TypeError("a notice belongs to no seed")

    def eta(self, now: float) -> float | None:
        """Seconds that are left: those of the iterations at their recent speed, and of the evaluation once it runs."""
        if self.finished:
            return 0.0
        if self.iteration < self.iterations:
            if not self.recent:
                return None
            return (self.iterations - self.iteration) * sum(self.recent) / len(self.recent)
        done = self.played - self.played_since
        if self.evaluating_since is None or not done or not self.planned:
            return None
        return (self.planned - self.played) * (now - self.evaluating_since) / done

    def columns(self, now: float) -> tuple[str, ...]:
        """Texts below _HEADS: training and its speed, evaluation, time left; "" where nothing is known."""
        left = self.eta(now)
        return (
            str(self.seed),
            f"{self.iteration}/{self.iterations}" if self.iterations else "",
            "" if self.success is None else f"{100 * self.success:.1f}%",
            "" if self.reward is None else f"{self.reward:.3f}",
            "" if self.tokens_per_second is None else f"{self.tokens_per_second:,.0f}",
            f"{self.played}/{self.planned}" if self.planned else str(self.played) if self.played else "",
            f"{100 * self.successes / self.judged:.1f}%" if self.judged else "",
            "done" if self.finished else "" if left is None else _clock(left),
        )


_HEADS = ("seed", "iteration", "training success", "reward", "tokens/s", "evaluated", "its success", "left")


class Progress:
    """Shows the events of a run, or of several; `listen` is what the runner is given.

    Args:
        stream: where it goes; the table is only for a terminal.
        clock: seconds; for tests.
        interval: least seconds between two plain lines of one seed.
    """

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, interval: float = INTERVAL
    ) -> None:
        self.seeds: dict[tuple[str, int], SeedState] = {}
        self._stream, self._clock, self._interval = stream, clock, interval
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                get_renderable=self._table, console=Console(file=self._stream), refresh_per_second=2, transient=False
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def listen(self, event: Event, run: str = "") -> None:
        """Take an event and show it; `run` is what its run is called, where there are several."""
        if isinstance(event, Notice):
            self.say(f"notice: {f'{run}: ' if run else ''}{event.text}")
            return
        now = self._clock()
        state = self.seeds.setdefault((run, event.seed), SeedState(event.seed))
        first = state.told == float("-inf")
        state.take(event, now)
        if self._live is not None:
            state.told = now
            return
        ends = isinstance(event, Finished)
        if first or ends or now - state.told >= self._interval:
            state.told = now
            self.say(f"{f'{run}, ' if run else ''}{_line(state, now)}")

    def drop(self, run: str, seed: int, text: str) -> None:
        """A seed that ended in an error: say so, and show it no longer."""
        self.seeds.pop((run, seed), None)
        self.say(f"{run}, seed {seed} failed: {text}")

    def say(self, text: str) -> None:
        """Print a line, above the table where there is one."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

    def _table(self) -> Table:
        from rich.table import Table

        now = self._clock()
        if not any(run for run, _ in self.seeds):
            table = Table(*_HEADS, box=None, padding=(0, 2, 0, 0))
            for key in sorted(self.seeds):
                table.add_row(*self.seeds[key].columns(now))
            return table
        table = Table("run", *_HEADS, box=None, padding=(0, 2, 0, 0))  # of several runs, only what is at work
        for (run, _), state in self.seeds.items():
            if not state.finished:
                table.add_row(run, *state.columns(now))
        done = sum(state.finished for state in self.seeds.values())
        table.caption = f"{done} of {len(self.seeds)} seeds that have begun are done"
        return table


def _line(state: SeedState, now: float) -> str:
    seed, iteration, success, reward, speed, evaluated, solved, left = state.columns(now)
    parts = [
        iteration and f"iteration {iteration}",
        success and f"success {success}",
        reward and f"reward {reward}",
        speed and f"{speed} tokens/s",
        evaluated and f"evaluated {evaluated}",
        solved and f"success {solved}",
        left and (left if state.finished else f"{left} left"),
    ]
    return f"seed {seed}: {', '.join(part for part in parts if part) or 'started'}"


def _clock(seconds: float) -> str:
    """ "0:42", "3:20", "2:05:00"."""
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
