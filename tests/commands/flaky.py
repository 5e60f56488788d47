"""A toy world whose infrastructure fails on one task, until it is repaired."""

from __future__ import annotations

from typing import ClassVar

from harness.env import InfraError
from harness.types import Observation, Task
from tests.toys import ToyEnv


class FlakyEnv(ToyEnv):
    repaired: ClassVar[bool] = False

    def reset(self, task: Task, *, seed: int) -> Observation:
        if task.id == self.tasks("test")[2].id and not self.repaired:
            raise InfraError("the browser is gone")
        return super().reset(task, seed=seed)
