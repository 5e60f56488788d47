"""Finding stored runs by what a user calls them: a folder, its name in the store, or a method and an environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.manifest import Manifest
    from results.records import EpisodeRow


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's folder and its manifest."""

    path: Path
    manifest: Manifest

    @property
    def method(self) -> str:
        return str(self.manifest.config["method"])

    @property
    def env(self) -> str:
        return str(self.manifest.config["env"])

    @property
    def last_iteration(self) -> int:
        """The iteration after which the run is finished; 0 for a method that does not learn."""
        return int(self.manifest.config["options"].get("iterations", 0))

    @property
    def has_rows(self) -> bool:
        from results.store import RunFolder

        return RunFolder(self.path).rows.is_file()

    def rows(self) -> list[EpisodeRow]:
        """Stored rows; none when the run has written none yet.

        Raises:
            InputError: a line that is no row; nothing is deleted.
        """
        from harness.runner import stored_rows
        from results.store import RunFolder

        return stored_rows(RunFolder(self.path))

    def rows_at(self, iteration: int) -> list[EpisodeRow]:
        """Rows of one evaluation.

        Raises:
            InputError: there are none: the run is not finished, or was not evaluated after that iteration.
        """
        from harness.errors import InputError

        stored = self.rows()
        rows = [row for row in stored if row.iteration == iteration]
        if not rows:
            there = ", ".join(map(str, sorted({row.iteration for row in stored}))) or "none"
            raise InputError(
                f"{self.path.name} has no rows of iteration {iteration}; evaluated so far: {there} (finish the run with"
                f" the command that `harness show {self.path.name}` prints, or name an iteration: NAME@N)"
            )
        return rows


def stored_runs(out: Path) -> list[StoredRun]:
    """Every run under a store root, by name.

    Raises:
        InputError: there is no such folder, or a manifest in it cannot be read.
    """
    from harness.errors import InputError
    from harness.manifest import Manifest

    if not out.is_dir():
        raise InputError(f'there is no store at "{out}"; --out names the folder that runs were written to')
    return [StoredRun(path.parent, Manifest.read(path)) for path in sorted(out.glob("*/manifest.json"))]


def find_run(name: str, out: Path, *, env: str | None = None) -> StoredRun:
    """The one run that a name means.

    Args:
        name: path of a run's folder, name of a folder in the store, or name of a method.
        out: store root.
        env: environment that a method's run must be of.

    Raises:
        InputError: no run, or several; what is stored is listed.
    """
    from harness.errors import InputError
    from harness.manifest import Manifest

    for folder in (Path(name), out / name):
        if (folder / "manifest.json").is_file():
            run = StoredRun(folder, Manifest.read(folder / "manifest.json"))
            if env is not None and run.env != env:
                raise InputError(f'"{name}" is a run on {run.env}, not on {env}; pass --env {run.env} or another run')
            return run
    runs = stored_runs(out)
    fitting = [run for run in runs if run.method == name and env in (None, run.env)]
    fitting = [run for run in fitting if run.has_rows] or fitting  # a run that never began does not stand in the way
    if len(fitting) == 1:
        return fitting[0]
    where = f' on "{env}"' if env else ""
    if not fitting:
        stored = ", ".join(run.path.name for run in runs) or "none"
        raise InputError(f'no run of "{name}"{where} in {out}; stored: {stored} (harness list runs --out {out})')
    heading = f'"{name}"{where} means {len(fitting)} runs; name the folder of one:'
    raise InputError("\n".join((heading, *apart(fitting))))


def apart(runs: list[StoredRun]) -> list[str]:
    """A line a run with the settings that not all of them share."""
    settings = [_settings(run.manifest) for run in runs]
    keys = sorted({key for one in settings for key in one})
    told = [key for key in keys if len({str(one.get(key)) for one in settings}) > 1]
    return [
        "  ".join((f"  {run.path}", *(f"{key}={one.get(key)}" for key in told)))
        for run, one in zip(runs, settings, strict=True)
    ]


def _settings(manifest: Manifest) -> dict[str, Any]:
    config = dict(manifest.config)
    options = config.pop("options")
    return {**config, **options, "data": manifest.data_digest, "env_version": manifest.env_version}
