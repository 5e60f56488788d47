"""Prompt templates and parsing of replies. Templates are text files with {slots}; a user can replace any of them.

A method keeps its templates in `prompts/<view>/<name>.txt` beside its code. The option `prompts=FOLDER` puts a folder
of the same shape in front: what it holds replaces the shipped file of that name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from harness.env import EnvSpec
from harness.episode import Episode
from harness.errors import InputError
from harness.types import Step, Trajectory, View

_SLOT = re.compile(r"\{(\w+)\}")


class Template:
    """One template file.

    Raises:
        InputError: a slot that the prompt does not have, or one of its required slots is missing.
    """

    def __init__(self, text: str, *, source: str, slots: Sequence[str]) -> None:
        used = set(_SLOT.findall(text))
        if unknown := used - set(slots):
            raise InputError(f"{source} has unknown slots {sorted(unknown)}; this prompt offers {sorted(slots)}")
        if missing := set(slots) - used:
            raise InputError(f"{source} lacks the slots {sorted(missing)}; every slot must stand in the template")
        self.text = text

    def render(self, **values: str) -> str:
        """Fill the slots. What is filled in is data: braces in it are not read as slots."""
        return _SLOT.sub(lambda match: values[match.group(1)], self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Words of the template itself, for closed vocabularies."""
        return frozenset(_SLOT.sub(" ", self.text).split())


def load_template(package: str, view: View, name: str, slots: Sequence[str], folder: str | None = None) -> Template:
    """Load `<package>/prompts/<view>/<name>.txt`, or its replacement in `folder`.

    Raises:
        InputError: `folder` is not there, or the file has wrong slots.
    """
    if folder is not None:
        if not Path(folder).is_dir():
            raise InputError(f"prompts={folder} is not a folder; it must hold <view>/<name>.txt files")
        own = Path(folder) / view / f"{name}.txt"
        if own.is_file():
            return Template(own.read_text(encoding="utf-8").strip(), source=str(own), slots=slots)
    shipped = files(package) / "prompts" / view / f"{name}.txt"
    return Template(shipped.read_text(encoding="utf-8").strip(), source=str(shipped), slots=slots)


class Scene:
    """What stands in the slots: descriptions, contexts and histories, worded for one environment and view."""

    def __init__(self, spec: EnvSpec, view: View, history: int) -> None:
        self.spec, self.view, self.length = spec, view, history

    def description(self, instruction: str) -> str:
        """{description}: the world, its rules and the task; in the compact view the task alone."""
        if self.view == "compact":
            return instruction
        return f"{self.spec.description}\n\nYour task: {instruction}".strip()

    def context(self, episode: Episode) -> str:
        """{context}: the last steps and what is seen now."""
        shown = len(episode.history) if self.length < 0 else min(self.length, len(episode.history))
        recent = episode.history[len(episode.history) - shown :]
        if self.view == "compact":
            did = " ".join(f"{step.action or 'malformed'} ;" for step in recent)
            return f"{episode.observation.text} did {did}" if did else episode.observation.text
        return self._full_context(episode, recent)

    def _full_context(self, episode: Episode, recent: Sequence[Step]) -> str:
        lines: list[str] = []
        if recent:
            lines.append(f"Steps taken so far: {episode.steps}. The last {len(recent)}:")
            for step in recent:
                lines += [f"[{step.index}] action: {_shown(step)}", f"    seen then: {step.observation.text}"]
        lines.append(f"What you see now (step {episode.steps + 1} of at most {episode.horizon}):")
        lines.append(episode.observation.text)
        if episode.observation.admissible_actions:
            lines.append("Possible now: " + ", ".join(episode.observation.admissible_actions))
        return "\n".join(lines)

    @property
    def instruction(self) -> str:
        """{instruction}: how an action is written."""
        return self.spec.actions

    def history(self, trajectory: Trajectory, *, final: bool = True) -> str:
        """{history}: all actions numbered from 1, with what was seen; `final` keeps the last observation."""
        if self.view == "compact":
            done = [(step.index, step.page or "none", step.action or "malformed") for step in trajectory.steps]
            return " ".join(f"{index} {page} {action} ;" for index, page, action in done)
        lines: list[str] = []
        for step in trajectory.steps:
            lines.append(f"Step {step.index}: {_shown(step)}")
            if final or step is not trajectory.steps[-1]:
                lines.append(f"Seen: {step.observation.text}")
        return "\n".join(lines)


def _shown(step: Step) -> str:
    return "(a reply without a valid action)" if step.action is None else step.action


def parse_tag(reply: str, tag: str) -> str | None:
    """Text of the last complete tag pair, stripped; None when there is none or it is empty (StraTA B.2)."""
    found = re.findall(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", reply, flags=re.DOTALL)
    return (found[-1].strip() or None) if found else None


def parse_action(reply: str) -> str | None:
    """The action of a reply, or None when it is malformed."""
    return parse_tag(reply, "action")


def parse_numbers(reply: str, tag: str, *, highest: int) -> frozenset[int] | None:
    """Step numbers in the list of a tag: integers in 1..highest, repetitions dropped; None without a tag or a list.

    Whatever else stands in the list ("step 2", a negative number, a fraction) names no step and is passed over.
    """
    content = parse_tag(reply, tag)
    found = re.search(r"\[([^\[\]]*)\]", content) if content is not None else None
    if found is None:
        return None
    # at most nine digits: longer ones are no steps, and int() refuses some
    numbers = re.findall(r"(?<![\w.-])0*([0-9]{1,9})(?![\w-]|\.[0-9])", found.group(1))
    return frozenset(n for n in map(int, numbers) if 1 <= n <= highest)
