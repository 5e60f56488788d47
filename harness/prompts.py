"""Prompts, from templates to what is sent, and the parsing of replies.

Templates are text files with {slots}; a user can replace any of them. A method keeps its own in
`prompts/<view>/<name>.txt` beside its code. The option `prompts=FOLDER` puts a folder of the same shape in front: what
it holds replaces the shipped file of that name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from harness.env import Env, EnvSpec
from harness.episode import Episode, EpisodeFailed
from harness.errors import InputError, unknown
from harness.model import Kit, Prompt, UnsupportedOption, estimated_tokens
from harness.types import Status, Step, Trajectory, View

if TYPE_CHECKING:
    from harness.method import Method, MethodConfig

Slots = Mapping[View, Mapping[str, Sequence[str]]]
"""View -> name of a template -> slots that stand in it."""

ACTION_WORDS = 12
"""What is kept of an action where a compact prompt is too long: scripted experts write at most 9 words, only a policy
that rambles writes more."""

MALFORMED = "malformed"
"""What a compact prompt shows in the place of an action that could not be read."""

SCENE_WORDS = (MALFORMED, "did", "none", ";")
"""What compact contexts and histories hold beside the words of the world."""

REASONING = "Before you answer, think step by step about what is left to do and what the next step should bring"

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


def load_templates(package: str, view: View, slots: Slots, folder: str | None = None) -> dict[str, Template]:
    """Load all templates of a method for one view, by name.

    Raises:
        InputError: see `load_template`; or `folder` holds a file, for either view, that is no template of the method
            and would never be read.
    """
    if folder is not None:
        _check_names(Path(folder), slots)
    return {name: load_template(package, view, name, offered, folder) for name, offered in slots[view].items()}


def _check_names(folder: Path, slots: Slots) -> None:
    held = [path for view in slots for path in sorted(folder.glob(f"{view}/*")) if not path.name.startswith(".")]
    known = [f"{view}/{name}.txt" for view, names in slots.items() for name in names]
    if folder.is_dir() and not held:
        raise InputError(f"prompts={folder} holds no templates; this method reads {', '.join(known)}")
    for path in held:
        if (name := path.relative_to(folder).as_posix()) not in known:
            raise unknown(f"template in prompts={folder}:", name, known)


class Scene:
    """What stands in the slots: descriptions, contexts and histories, worded for one environment and view.

    Args:
        spec: of the environment.
        view: rendering of the environment.
        history: steps shown in a context; -1 for all.
        reasoning: whether {instruction} asks for reasoning before the action.

    Raises:
        UnsupportedOption: reasoning in the compact view, whose prompts hold no instruction.
    """

    def __init__(self, spec: EnvSpec, view: View, history: int, *, reasoning: bool = False) -> None:
        if reasoning and view == "compact":
            raise UnsupportedOption(
                "reasoning=true asks for it in words, and the prompts of the compact view hold none; "
                "use --view full, or leave reasoning out"
            )
        self.spec, self.view, self.length, self.reasoning = spec, view, history, reasoning

    def description(self, instruction: str) -> str:
        """{description}: the world, its rules and the task; in the compact view the task alone."""
        if self.view == "compact":
            return instruction
        return f"{self.spec.description}\n\nYour task: {instruction}".strip()

    def recent(self, episode: Episode) -> Sequence[Step]:
        """The last steps, as many as are to be shown."""
        taken = episode.history
        return taken[max(0, len(taken) - self.length) :] if self.length >= 0 else taken

    def context(
        self, episode: Episode, steps: Sequence[Step] | None = None, thoughts: Mapping[int, str] | None = None
    ) -> str:
        """{context}: the last steps and what is seen now.

        Args:
            episode: so far.
            steps: to show; `recent` by default.
            thoughts: what was thought before the action of a step, by its index (full view).
        """
        recent = self.recent(episode) if steps is None else steps
        if self.view == "compact":
            did = " ".join(f"{step.action or MALFORMED} ;" for step in recent)
            return f"{episode.observation.text} did {did}" if did else episode.observation.text
        return self._full_context(episode, recent, thoughts or {})

    def _full_context(self, episode: Episode, recent: Sequence[Step], thoughts: Mapping[int, str]) -> str:
        lines: list[str] = []
        if recent:
            # a step is shown with what its action answered; what it led to stands with the next one, or is seen now
            before = [episode.first, *(step.observation for step in episode.history)]
            lines.append(f"Steps taken so far: {episode.steps}. The last {len(recent)}:")
            for step in recent:
                lines.append(f"[{step.index}] seen: {before[step.index - 1].text}")
                if step.index in thoughts:
                    lines.append(f"    thought: {thoughts[step.index]}")
                lines.append(f"    action: {_shown(step)}")
        lines.append(f"What you see now (step {episode.steps + 1} of at most {self.spec.horizon}):")
        lines.append(episode.observation.text)
        if episode.observation.admissible_actions:
            lines.append("Possible now: " + ", ".join(episode.observation.admissible_actions))
        return "\n".join(lines)

    @property
    def instruction(self) -> str:
        """{instruction}: how an action is written, and whether to think before."""
        return f"{self.spec.actions}. {REASONING}" if self.reasoning else self.spec.actions

    def history(self, trajectory: Trajectory, steps: Sequence[Step] | None = None, *, final: bool = True) -> str:
        """{history}: actions numbered from 1, with what was seen.

        Args:
            trajectory: that is told.
            steps: of it; all by default.
            final: whether the observation after its last step is shown (full view; the compact one shows pages only).
        """
        told = trajectory.steps if steps is None else steps
        if self.view == "compact":
            done = [(step.index, step.page or "none", step.action or MALFORMED) for step in told]
            return " ".join(f"{index} {page} {action} ;" for index, page, action in done)
        lines: list[str] = []
        for step in told:
            lines.append(f"Step {step.index}: {_shown(step)}")
            if final or step.index < len(trajectory.steps):
                lines.append(f"Seen: {step.observation.text}")
        return "\n".join(lines)


class Prompts:
    """The prompts of one method: its templates, filled from a scene, each within the token limit.

    A subclass has a method for each kind of prompt. `Method.setup` tells it the models, who count the tokens; until
    then their number is estimated.

    Args:
        package: that holds the shipped templates.
        slots: of all templates, for both views.
        config: of the method.
        spec: of the environment.
        view: rendering of the environment.
    """

    def __init__(self, package: str, slots: Slots, config: MethodConfig, spec: EnvSpec, view: View) -> None:
        self.scene = Scene(spec, view, config.history, reasoning=config.reasoning)
        self.templates = load_templates(package, view, slots, config.prompts)
        self.max_prompt, self.max_tokens = config.max_prompt, config.max_tokens
        self.kit: Kit | None = None

    def setup(self, kit: Kit) -> None:
        """Take the models; called by `Method.setup`."""
        self.kit = kit

    def fit(
        self, kind: str, steps: Sequence[Step], render: Callable[[Sequence[Step]], str], *, role: str = "policy"
    ) -> Prompt:
        """A prompt with as many of the last steps as its token limit allows: the oldest go first, and nothing else.

        The limit is `max_prompt`, or what the model's positions leave beside a response where that is less. In the
        compact view a prompt that is too long first loses the words of its actions beyond `ACTION_WORDS`.

        Args:
            kind: of the prompt.
            steps: that would be shown.
            render: text of the prompt that shows some of the last of them.
            role: of the model that will be asked.

        Raises:
            EpisodeFailed: too long without any step; only this episode is lost.
        """

        def made(shown: Sequence[Step]) -> Prompt:
            return Prompt.user(render(shown), kind=kind)

        limit = self.limit(role)
        prompt = made(steps)
        if self.count(prompt, role) <= limit:
            return prompt
        if self.scene.view == "compact":
            steps = [_cut(step) for step in steps]
        places = range(len(steps))
        first = bisect_left(places, True, key=lambda place: self.count(made(steps[place:]), role) <= limit)
        prompt = made(steps[first:])
        if (length := self.count(prompt, role)) > limit:
            raise EpisodeFailed(
                Status.ENV_ERROR,
                f"{kind} prompt of {length} tokens exceeds max_prompt={limit} even without any past step; raise "
                "max_prompt, or lower max_tokens where the model's positions are the limit",
            )
        return prompt

    def limit(self, role: str) -> int:
        """Most tokens of a prompt to the model of a role."""
        positions = self.kit.model(role).positions if self.kit else None
        return self.max_prompt if positions is None else min(self.max_prompt, positions - self.max_tokens)

    def count(self, prompt: Prompt, role: str) -> int:
        """Tokens of a prompt, as the model of a role counts them."""
        return self.kit.model(role).count(prompt) if self.kit else estimated_tokens(prompt)


def prompts_of(method: object) -> list[Prompts]:
    """All prompts that a method keeps, wherever it does."""
    return [held for held in vars(method).values() if isinstance(held, Prompts)]


def check_words(method: Method, kit: Kit, env: Env) -> None:
    """Refuse models with a closed vocabulary where they would be shown other words; called before a run starts.

    Args:
        method: whose templates they will read.
        kit: the models.
        env: whose words they will read.

    Raises:
        UnsupportedOption: such a model in a view of free text, in a world whose words are no closed set, or one that
            lacks words of the world or the templates.
    """
    world = f"environment {env.spec.name!r}{' with --env-data' if env.data else ''}"
    templates = [template.words for prompts in prompts_of(method) for template in prompts.templates.values()]
    for role, model in kit.models.items():
        if model.vocabulary is None:
            continue
        who = f"the {role} {model.name!r} reads {len(model.vocabulary)} words alone"
        other = f"--model {'' if role == 'policy' else f'{role}='}transformers:ID"
        if env.view != "compact":
            raise UnsupportedOption(f"{who}, and the {env.view} view holds any; use --view compact, or {other}")
        if not env.vocabulary():
            raise UnsupportedOption(f"{who}, and {world} holds any; use embedded data if there are any, or {other}")
        of_prompts = frozenset(SCENE_WORDS).union(*templates)
        for words, source in ((env.vocabulary(), world), (of_prompts, "the prompts")):
            if missing := sorted(set(words) - model.vocabulary):
                examples = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
                raise UnsupportedOption(
                    f"{who}, and not {len(missing)} of {source} ({examples}); use a policy that knows them, or {other}"
                )


def _shown(step: Step) -> str:
    return "(a reply without a valid action)" if step.action is None else step.action


def _cut(step: Step) -> Step:
    """The step with the first words of its action."""
    return step if step.action is None else replace(step, action=" ".join(step.action.split()[:ACTION_WORDS]))


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
