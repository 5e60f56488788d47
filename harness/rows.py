"""From episodes to stored rows and transcripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import RunConfig
from harness.episode import Episode, EpisodeFailed
from harness.events import EpisodeDone, Event, Notice
from harness.manifest import code_version
from harness.method import Method
from harness.model import Kit
from harness.plan import Plan
from harness.redact import redact
from harness.types import Status, StopReason, Task, Trajectory
from results.records import EpisodeRow, RowKey
from results.store import RowWriter, RunFolder
from results.transcripts import read_transcripts, write_transcripts


def model_name(config: RunConfig) -> str:
    """The models of a run as a row names them: the policy's specification, then other roles."""
    others = (f"{role}={spec}" for role, spec in sorted(config.models.items()) if role != "policy")
    return "+".join((config.models["policy"], *others))


def row_key(plan: Plan, seed: int, task: Task, iteration: int) -> RowKey:
    """Key of the row that an evaluation episode gets."""
    config = plan.config
    return RowKey(
        config.method,
        plan.method_digest,
        config.env,
        ",".join(config.perturb) or None,
        model_name(config),
        task.id,
        seed,
        iteration,
    )


def transcript_file(plan: Plan, folder: RunFolder, seed: int, iteration: int, lane: int) -> Path:
    """Where the transcripts of a lane lie; those of the last evaluation have the plain name."""
    path = folder.transcripts(seed, lane)
    return path if iteration == plan.evaluations[-1] else path.with_name(f"iteration-{iteration}-{path.name}")


TOLD = 3
"""Episodes without a verdict whose reason is told while they are played; all reasons stand in the transcripts."""


class Recorder:
    """Writes the rows of one seed, each when its episode ends.

    Attributes:
        deterministic: whether playing again gives the same episodes: every model and the environment are.
    """

    def __init__(
        self,
        plan: Plan,
        seed: int,
        folder: RunFolder,
        kit: Kit,
        method: Method,
        *,
        listen: Callable[[Event], None],
        drift: bool,
        attempts: Mapping[RowKey, int],
    ) -> None:
        self.plan, self.seed, self.folder, self.listen, self.attempts = plan, seed, folder, listen, attempts
        models = kit.models.values()
        self.deterministic = all(model.deterministic for model in models) and method.spec.deterministic
        config, policy = plan.config, kit.policy
        self._constant: dict[str, Any] = {
            "run": plan.name,
            "method": config.method,
            "method_digest": plan.method_digest,
            "env": config.env,
            "perturbation": ",".join(config.perturb) or None,
            "model": model_name(config),
            "seed": seed,
            "backend": policy.backend,
            "deterministic": self.deterministic,
            "protocol": "stream" if method.stream else "standard",
            "view": config.view,
            "code_version": code_version(),
            "env_version": str(plan.env_version),
            "data_digest": plan.data_digest,
            "drift": drift,
        }
        self._writer: RowWriter | None = None
        self._told = 0

    def write(self, episode: Episode, outcome: Trajectory | EpisodeFailed, iteration: int, seconds: float) -> None:
        """Append the row of a finished episode and wait until it is on the disk.

        Raises:
            results.store.StoreError: the disk is full; rows written before are kept.
        """
        if self._writer is None:
            self._writer = RowWriter(self.folder.rows)
        usage = episode.usage
        if isinstance(outcome, Trajectory):
            status, stop = outcome.verdict.status, outcome.stop
            success, score, reward = outcome.verdict.success, outcome.verdict.score, outcome.reward
        else:
            status = outcome.status
            stop = StopReason.ENV_ERROR if status is Status.ENV_ERROR else StopReason.INFRA_ERROR
            success = score = reward = None
        row = EpisodeRow(
            **self._constant,
            task=episode.task.id,
            subset=episode.task.subset,
            group=episode.task.group,
            iteration=iteration,
            status=status,
            success=success,
            score=score,
            reward=reward,
            steps=episode.steps,
            stop=stop,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            tokens_cached=usage.tokens_cached,
            cost=usage.cost,
            wall_time=seconds,
            attempt=1 + self.attempts.get(row_key(self.plan, self.seed, episode.task, iteration), 0),
        )
        self._writer.write(row)
        if isinstance(outcome, EpisodeFailed):
            self._tell(row.task, str(outcome))
        self.listen(EpisodeDone(self.seed, iteration, row.task, str(row.status), row.success, row.score))

    def _tell(self, task: str, reason: str) -> None:
        """Say why an episode has no verdict, a few times and not for every episode of a broken world."""
        if self._told < TOLD:
            self._told += 1
            self.listen(Notice(f"seed {self.seed}: {task} has no verdict: {redact(reason)}"))

    def transcript(self, episode: Episode, outcome: Trajectory | EpisodeFailed) -> dict[str, Any]:
        """What was said and done, as plain JSON values, secrets masked."""
        return {
            "task": episode.task.id,
            "seed": self.seed,
            "instruction": redact(episode.task.instruction),
            "strategy": episode.strategy.text if episode.strategy else None,
            **_ending(outcome),
            "turns": [
                {
                    "role": turn.role,
                    "kind": turn.kind,
                    "prompt": redact(turn.prompt),
                    "reply": redact(turn.completion.text),
                    "steps": list(turn.steps),
                }
                for turn in episode.turns
            ],
            "steps": [
                {
                    "index": step.index,
                    "action": step.action,
                    "observation": redact(step.observation.text),
                    "reward": step.reward,
                    "admissible": step.admissible,
                }
                for step in episode.history
            ],
        }

    def transcript_file(self, iteration: int, lane: int) -> Path:
        """Where the transcripts of a lane of this seed lie."""
        return transcript_file(self.plan, self.folder, self.seed, iteration, lane)

    def keep(self, transcripts: Sequence[dict[str, Any]], iteration: int, lane: int) -> None:
        """Store the transcripts of a lane, in task order; those of tasks that were not played again stay."""
        path = self.transcript_file(iteration, lane)
        stored = {entry["task"]: entry for entry in read_transcripts(path)} if path.is_file() else {}
        stored |= {entry["task"]: entry for entry in transcripts}
        write_transcripts(path, [stored[task] for task in sorted(stored)])


def _ending(outcome: Trajectory | EpisodeFailed) -> dict[str, Any]:
    if isinstance(outcome, EpisodeFailed):
        return {"stop": str(outcome.status), "error": redact(str(outcome)), "success": None, "score": None}
    verdict = outcome.verdict
    return {"stop": str(outcome.stop), "error": None, "success": verdict.success, "score": verdict.score}
