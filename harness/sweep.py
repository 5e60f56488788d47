"""A sweep: several runs at once, their seeds and lanes shared out among the same workers.

Each run has the folder, lock, manifest and rows that `harness run` gives it. All runs hold their folders while the
sweep lasts. One that fails is reported, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.env import DataError, InfraError
from harness.errors import InputError, RunError
from harness.events import Event, Finished, Started
from harness.executors.local import execute
from harness.model import UnsupportedOption
from harness.plan import Plan
from harness.runner import OpenRun, SeedWork, Unit, check_workers, finished_keys, opened, settled, stored_rows, undone
from results.records import EpisodeRow
from results.store import CorruptRow, RunFolder, StoreError

FAILURES = (RunError, InputError, UnsupportedOption, DataError, InfraError, StoreError, CorruptRow)
"""What may befall one run and leaves the others alone. Anything else is a fault of the program and ends the sweep."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run of a sweep; `argv` is the command that would make it alone, for its manifest."""

    plan: Plan
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What a run tells."""

    run: str
    event: Event


@dataclass(frozen=True, slots=True)
class Failed:
    """A seed of a run ended in an error; seed None: the run could not begin."""

    run: str
    seed: int | None
    message: str


SweepEvent = Told | Failed


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of a sweep left behind.

    Attributes:
        plan: of the run.
        folder: where it lies.
        rows: rows of the planned seeds, tasks and evaluations.
        missing: planned episodes without a row.
        failures: what went wrong.
    """

    plan: Plan
    folder: Path
    rows: tuple[EpisodeRow, ...]
    missing: int
    failures: tuple[Failed, ...]

    @property
    def without_verdict(self) -> int:
        """Episodes that ended without a verdict, and planned ones that have no row."""
        return self.missing + sum(not row.status.has_verdict for row in self.rows)


@dataclass(frozen=True, slots=True)
class SweepUnit:
    """A unit of work and the run it belongs to."""

    run: str
    unit: Unit


@dataclass
class SweepWork:
    """What a worker does with a unit: what that run's own worker would do, with its errors told instead of raised."""

    works: Mapping[str, SeedWork]
    _open: str | None = None

    def __call__(self, one: SweepUnit, listen: Callable[[SweepEvent], None]) -> None:
        if self._open not in (None, one.run):  # models of one run at a time
            self.works[str(self._open)].close()
        self._open = one.run
        try:
            self.works[one.run](one.unit, lambda event: listen(Told(one.run, event)))
        except FAILURES as error:
            self.works[one.run].close()
            listen(Failed(one.run, one.unit.seed, str(error)))


def sweep(
    jobs: Sequence[Job],
    *,
    out: Path,
    workers: int,
    allow_drift: bool = False,
    listen: Callable[[SweepEvent], None] = lambda event: None,
) -> list[Result]:
    """Run what of some plans is not stored yet; a run of which everything is stored is not opened.

    Seeds go round the runs: all first seeds, then all second ones, so that what an interrupted sweep leaves can be
    compared.

    Args:
        jobs: runs with different names.
        out: store root.
        workers: processes, each computing with one thread, for all runs together.
        allow_drift: go on although code or packages differ from a manifest's; the rows are marked.
        listen: told what happens.

    Returns:
        A result a job, in their order.

    Raises:
        InputError: less than one worker.
        RunError: a worker process died; finished rows are kept.
    """
    check_workers(workers)
    failures: dict[str, list[Failed]] = {job.plan.name: [] for job in jobs}

    def hear(event: SweepEvent) -> None:
        if isinstance(event, Failed):
            failures[event.run].append(event)
        listen(event)

    with ExitStack() as folders:
        held: dict[str, OpenRun] = {}
        for job in jobs:
            name = job.plan.name
            try:
                if pending(job.plan, out):
                    held[name] = folders.enter_context(
                        opened(job.plan, out=out, allow_drift=allow_drift, listen=_of(name, hear), argv=job.argv)
                    )
            except FAILURES as error:
                hear(Failed(name, None, str(error)))
        units = [SweepUnit(name, unit) for name, run in held.items() for unit in run.units]
        seeds = list(dict.fromkeys(seed for job in jobs for seed in job.plan.seeds))
        units.sort(key=lambda one: seeds.index(one.unit.seed))  # stable: within a seed, runs and lanes keep their order
        by_lane = [(name, seed, missing) for name, run in held.items() for seed, missing in run.by_lane().items()]
        for name, seed, missing in by_lane:
            hear(Told(name, Started(seed, 0, 0, missing)))
        execute(units, SweepWork({name: run.work for name, run in held.items()}), workers=workers, listen=hear)
        for name, seed, _ in by_lane:
            hear(Told(name, Finished(seed)))
        return [_result(job.plan, out, failures[job.plan.name]) for job in jobs]


def pending(plan: Plan, out: Path) -> list[Unit]:
    """Units of which something is missing, as the folder stands; nothing is opened, locked or written.

    Raises:
        InputError: the folder holds a corrupt row.
    """
    folder = RunFolder(out / plan.name)
    stored = stored_rows(folder) if folder.manifest.is_file() else []
    return undone(plan, folder, finished_keys(stored))


def _of(name: str, hear: Callable[[SweepEvent], None]) -> Callable[[Event], None]:
    return lambda event: hear(Told(name, event))


def _result(plan: Plan, out: Path, failures: Sequence[Failed]) -> Result:
    folder = RunFolder(out / plan.name)
    try:
        rows, missing = settled(plan, folder)
    except InputError:  # a corrupt row: it is among the failures already, and none of the rows is trusted
        rows, missing = (), plan.episodes
    return Result(plan, folder.path, rows, missing, tuple(failures))
