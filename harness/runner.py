"""The run: from a plan to a folder of rows. What happens once per run is here; a seed's story is in `cell`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness import registry
from harness.config import RunConfig
from harness.errors import InputError
from harness.events import Event, Finished, Notice, Started
from harness.executors.local import execute
from harness.lock import run_lock
from harness.manifest import Manifest, plugin_versions, settle
from harness.model import cannot_train
from harness.plan import Plan, make_plan
from results.records import EpisodeRow, RowKey
from results.store import CorruptRow, RunFolder, read_rows, repair_tail

if TYPE_CHECKING:
    from harness.cell import Cell


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work: a whole seed, or one lane of one evaluation of a method that does not learn."""

    seed: int
    lane: int | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run left behind.

    Attributes:
        run_dir: its folder.
        rows: rows of the planned seeds, tasks and evaluations.
        missing: planned episodes without a row.
        seconds: this call took.
    """

    run_dir: Path
    rows: tuple[EpisodeRow, ...]
    missing: int
    seconds: float

    @property
    def episodes(self) -> int:
        return len(self.rows)

    @property
    def without_verdict(self) -> int:
        """Episodes that ended without a verdict, and planned ones that have no row."""
        return self.missing + sum(not row.status.has_verdict for row in self.rows)


@dataclass
class SeedWork:
    """What a worker does with a unit; it keeps the plan and the cells it has opened."""

    config: RunConfig
    seeds: tuple[int, ...]
    folder: RunFolder
    finished: frozenset[RowKey]
    attempts: Mapping[RowKey, int]
    drift: bool
    _plan: Plan | None = None
    _cells: dict[int, Cell] = field(default_factory=dict)

    def __call__(self, unit: Unit, listen: Callable[[Event], None]) -> None:
        from harness.cell import Cell

        if self._plan is None:
            self._plan = make_plan(self.config, self.seeds)
        if unit.seed not in self._cells:
            self._cells = {
                unit.seed: Cell(
                    self._plan,
                    unit.seed,
                    self.folder,
                    finished=self.finished,
                    attempts=self.attempts,
                    listen=listen,
                    drift=self.drift,
                )
            }
        cell = self._cells[unit.seed]
        if unit.lane is None:
            cell.run()
        else:
            cell.evaluate(0, unit.lane)

    def close(self) -> None:
        """Let go of what is open; the next unit opens it again."""
        self._cells = {}


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose folder is held by this process.

    Attributes:
        plan: what to do.
        folder: where.
        units: what of it is not done yet.
        work: who does it; picklable.
    """

    plan: Plan
    folder: RunFolder
    units: tuple[Unit, ...]
    work: SeedWork

    def by_lane(self) -> dict[int, int]:
        """Missing episodes of each seed that is played lane by lane.

        A cell announces itself; a seed whose lanes may be with several workers is announced by whoever runs them.
        """
        missing: dict[int, int] = {}
        for unit in self.units:
            if unit.lane is not None:
                keys = unit_keys(self.plan, unit)
                missing[unit.seed] = missing.get(unit.seed, 0) + sum(key not in self.work.finished for key in keys)
        return missing


def run(
    plan: Plan,
    *,
    out: Path,
    workers: int,
    allow_drift: bool = False,
    listen: Callable[[Event], None] = lambda event: None,
) -> RunSummary:
    """Run what of a plan is not stored yet.

    The same command resumes: rows with a verdict stay, everything else is done (again), transcripts that were lost
    included. Added seeds extend the folder.

    Args:
        plan: what to do.
        out: store root; the run lives in `<out>/<plan.name>`.
        workers: processes, each computing with one thread.
        allow_drift: go on although code or packages differ from the manifest's; the rows are marked.
        listen: told what happens.

    Raises:
        InputError: the folder cannot be written, is in use, holds a corrupt row, or was made by another version; a
            half-done stream of a model that is not deterministic.
        RunError, StoreError: the run broke off; finished rows are kept.
    """
    started = time.perf_counter()
    check_workers(workers)
    with opened(plan, out=out, allow_drift=allow_drift, listen=listen) as held:
        by_lane = held.by_lane()
        for seed, missing in by_lane.items():
            listen(Started(seed, 0, 0, missing))
        execute(held.units, held.work, workers=workers, listen=listen)
        for seed in by_lane:
            listen(Finished(seed))
        rows, missing = settled(plan, held.folder)
    return RunSummary(held.folder.path, rows, missing, time.perf_counter() - started)


@contextmanager
def opened(
    plan: Plan,
    *,
    out: Path,
    allow_drift: bool = False,
    listen: Callable[[Event], None] = lambda event: None,
    argv: Sequence[str] | None = None,
) -> Iterator[OpenRun]:
    """Hold a run's folder, its manifest written or compared and its rows read.

    Args:
        plan, out, allow_drift, listen: as in `run`.
        argv: command line for the manifest; this process's by default.

    Raises:
        InputError, RunError: as in `run`.
        harness.model.UnsupportedOption: the method trains its policy, and the policy's back end cannot.
    """
    check_trainable(plan.config)
    folder = RunFolder(out / plan.name)
    with run_lock(folder.path):
        drift = settle(folder.manifest, manifest(plan, argv), allow_drift=allow_drift)
        if notice := repair_tail(folder.rows):
            listen(Notice(notice))
        before = stored_rows(folder)
        finished = finished_keys(before)
        attempts = {row.key: row.attempt for row in before if not row.status.has_verdict}
        work = SeedWork(plan.config, plan.seeds, folder, finished, attempts, drift)
        yield OpenRun(plan, folder, tuple(undone(plan, folder, finished)), work)


def check_trainable(config: RunConfig) -> None:
    """Refuse a policy that cannot train for a method that trains it, before anything is written.

    Raises:
        harness.model.UnsupportedOption: it is known not to train.
    """
    method, policy = registry.load_method(config.method), config.models["policy"]
    if method.trains_policy(config.method_config()) and registry.only_answers(policy):
        raise cannot_train(policy.partition(":")[0])


def check_workers(workers: int) -> None:
    """Refuse less than one worker."""
    if workers < 1:
        raise InputError(f"--workers is {workers}; it must be at least 1")


def finished_keys(rows: Sequence[EpisodeRow]) -> frozenset[RowKey]:
    """Keys of the rows with a verdict."""
    return frozenset(row.key for row in rows if row.status.has_verdict)


def undone(plan: Plan, folder: RunFolder, finished: frozenset[RowKey]) -> list[Unit]:
    """Units of which something is missing."""
    return [unit for unit in all_units(plan) if not is_done(plan, unit, finished, folder)]


def settled(plan: Plan, folder: RunFolder) -> tuple[tuple[EpisodeRow, ...], int]:
    """Stored rows of the planned seeds, tasks and evaluations, and how many planned episodes have none."""
    wanted = {key for unit in all_units(plan) for key in unit_keys(plan, unit)}
    rows = tuple(row for row in stored_rows(folder) if row.key in wanted)
    return rows, len(wanted) - len(rows)


def manifest(plan: Plan, argv: Sequence[str] | None = None) -> Manifest:
    """The manifest that this run would write; `argv` is the command, this process's by default."""
    config = plan.config
    return Manifest.make(
        name=plan.name,
        digest=plan.digest,
        config=config.model_dump(mode="json"),
        method_digest=plan.method_digest,
        env_version=plan.env_version,
        data_digest=plan.data_digest,
        task_list=plan.task_list,
        model_identities=plan.identities,
        argv=sys.argv if argv is None else argv,
        plugins=plugin_versions(env=config.env, method=config.method, models=list(config.models.values())),
    )


def all_units(plan: Plan) -> list[Unit]:
    """Whole seeds for a method that learns, lanes for one that does not; seeds in the given order."""
    if plan.evaluations[-1] > 0 or registry.load_method(plan.config.method).stream:
        return [Unit(seed) for seed in plan.seeds]
    return [Unit(seed, lane) for seed in plan.seeds for lane in range(len(plan.lanes))]


def unit_keys(plan: Plan, unit: Unit) -> list[RowKey]:
    """Keys of the rows that a unit writes."""
    from harness.rows import row_key

    tasks = plan.tasks if unit.lane is None else plan.lanes[unit.lane]
    return [row_key(plan, unit.seed, task, iteration) for iteration in plan.evaluations for task in tasks]


def is_done(plan: Plan, unit: Unit, finished: frozenset[RowKey], folder: RunFolder) -> bool:
    """Whether every row of a unit is stored with a verdict, and its transcripts are there where they are kept."""
    from harness.rows import transcript_file

    if not all(key in finished for key in unit_keys(plan, unit)):
        return False
    lanes = range(len(plan.lanes)) if unit.lane is None else (unit.lane,)
    return not plan.config.transcripts or all(
        transcript_file(plan, folder, unit.seed, iteration, lane).is_file()
        for iteration in plan.evaluations
        for lane in lanes
    )


def stored_rows(folder: RunFolder) -> list[EpisodeRow]:
    """Rows of a run; none when it has not written any.

    Raises:
        InputError: a line that is no row; nothing is deleted.
    """
    if not folder.rows.is_file():
        return []
    try:
        return read_rows(folder.rows)
    except CorruptRow as error:
        raise InputError(f"{error}; nothing was deleted: repair or remove that line, or move the file away") from error
