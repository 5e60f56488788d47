"""WebShop (Yao et al. 2022, arXiv 2207.01206): find and buy the product that a goal describes.

Without `data` it plays on the embedded catalogue, with `data` on the original files (see README.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from envs.webshop import compact
from envs.webshop.catalogue import embedded_catalogue
from envs.webshop.expert import expert_vocabulary
from envs.webshop.goals import GoalSplits, digest, embedded_goals
from envs.webshop.nouns import LexiconNouns, Nouns, SpacyNouns
from envs.webshop.official import load_official
from envs.webshop.pages import BUY, NEXT, PAGE_SIZE, SEPARATOR, Page, Shop, clickables, page_text
from envs.webshop.reward import Reward, reward
from envs.webshop.schema import Goal, Product
from envs.webshop.words import nouns as lexicon_nouns
from harness.demonstration import Demonstration
from harness.env import Env, EnvSpec
from harness.types import Observation, Split, Status, StepInfo, StepResult, Task, Verdict, View

_NO_OP = "nothing of that name can be clicked here, or it is no action"


@dataclass(frozen=True, slots=True)
class World:
    """What all episodes of a process share."""

    shop: Shop
    goals: GoalSplits
    nouns: Nouns
    digest: str

    def judge(self, page: Page, goal: Goal) -> Reward:
        """What buying the opened product with the chosen options is worth."""
        return reward(page.opened, page.chosen, goal, self.nouns)


def open_world(data: str | None = None) -> World:
    """The shop and its goals, loaded once per process.

    Args:
        data: folder of the original files; the embedded catalogue by default.

    Raises:
        DataError: files that are missing or malformed, or spaCy missing for official data.
    """
    return _load(data)


@cache
def _load(data: str | None) -> World:
    if data is None:
        products = embedded_catalogue()
        goals = embedded_goals(products)
        nouns: Nouns = LexiconNouns(lexicon_nouns())
    else:
        products, goals = load_official(data)
        nouns = SpacyNouns()
    return World(Shop(products), goals, nouns, digest(products, goals))


@cache
def _tasks(data: str | None, view: View, split: Split) -> tuple[Task, ...]:
    goals: Sequence[Goal] = getattr(open_world(data).goals, split)
    return tuple(
        Task(
            env="webshop",
            id=f"{split}-{number:04d}",
            split=split,
            instruction=goal.instruction if view == "full" else compact.goal_text(goal),
            group=goal.asin,
            payload=goal,
        )
        for number, goal in enumerate(goals, start=1)
    )


class WebShop(Env):
    """One shopper with one goal. The only reward comes with the purchase, which ends the episode."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="webshop",
        version=1,
        horizon=15,
        columns=("score", "success"),
        outcome="success",
        counts={"train": None, "validation": None, "test": 500},
        views=("full", "compact"),
        actions="search[keywords] or click[value]",
        description=(
            "You are in a web shop. Search for products, open one, choose the wanted options and buy it. "
            "The purchase ends the task; it is worth most when type, attributes, options and price all fit the goal."
        ),
    )

    def __init__(self, *, view: View | None = None, data: str | None = None) -> None:
        super().__init__(view=view, data=data)
        self.world = open_world(data)
        self._goal: Goal | None = None
        self.page = Page()

    @property
    def goal(self) -> Goal:
        """Goal of the running episode."""
        if self._goal is None:
            raise RuntimeError("webshop has no running episode; call reset(task, seed=...) first")
        return self._goal

    def tasks(self, split: Split) -> Sequence[Task]:
        return _tasks(self.data, self.view, split)

    def reset(self, task: Task, *, seed: int) -> Observation:
        """Start at the search page. Nothing is left to chance, so the seed changes nothing."""
        if not isinstance(task.payload, Goal):
            raise ValueError(f"task {task.id!r} of {task.env!r} holds no WebShop goal; take tasks from WebShop.tasks()")
        self._goal, self.page = task.payload, Page()
        return self._observation()

    def step(self, action: str) -> StepResult:
        if self.page.kind == "done":
            raise RuntimeError("the product is bought and the episode over; call reset(task, seed=...) first")
        page = self._next(action)
        if page is None:
            return StepResult(self._observation(), 0.0, False, False, StepInfo(admissible=False, message=_NO_OP))
        bought = page.kind == "done"
        if bought:
            page = replace(page, score=self.world.judge(page, self.goal).total)
        self.page = page
        return StepResult(self._observation(), page.score or 0.0, bought, False)

    def verdict(self) -> Verdict:
        score = self.page.score or 0.0
        return Verdict(Status.OK, success=score == 1.0, score=score)

    def oracle(self, task: Task) -> Sequence[str] | None:
        """Search for the goal's product, choose what the goal wants, buy; None where no search of ours finds it."""
        goal: Goal = task.payload
        product = self.world.shop.by_asin[goal.asin.lower()]
        for keywords in (" ".join((*goal.attributes, goal.query)), product.title.lower()):
            found = self._path_to(product, keywords)
            if found is not None:
                values = [value for name, value in goal.options.items() if value in product.options.get(name, ())]
                return self._spelled([*found, *(f"click[{value}]" for value in values), f"click[{BUY.lower()}]"])
        return None

    def wrong(self, task: Task) -> Sequence[str] | None:
        """Search for the type and buy, without options, the first product for which that is not a success."""
        goal: Goal = task.payload
        for product in self.world.shop.search(Page(), goal.query).shown:
            if self.world.judge(Page("item", product=product), goal).total < 1:
                actions = [f"search[{goal.query}]", f"click[{product.asin.lower()}]", f"click[{BUY.lower()}]"]
                return self._spelled(actions)
        return None

    def demonstrations(self, n: int, *, seed: int, noise: float) -> Sequence[Demonstration] | None:
        """The scripted shopper on the embedded training goals; official data have no such expert."""
        if self.data is not None:
            return None
        from envs.webshop.demonstrations import demonstrations  # it plays this class

        return demonstrations(n, seed, noise)

    def vocabulary(self) -> Sequence[str]:
        """Words of compact pages, goals and actions, and of the shopper's plans and thoughts."""
        return sorted({*compact.compact_vocabulary(), *expert_vocabulary()}) if self.data is None else ()

    @property
    def data_digest(self) -> str:
        return self.world.digest

    @property
    def malformed_notice(self) -> str:
        return compact.NOTICE if self.view == "compact" else super().malformed_notice

    def _observation(self) -> Observation:
        page, goal = self.page, self.goal
        if self.view == "compact":
            text = compact.page_text(page, goal)
            clicks = tuple(f"click {name}" for name in compact.compact_clicks(page))
            search = f"search {' '.join(compact.goal_words(goal))}"
        else:
            text = page_text(page, goal)
            clicks = tuple(f"click[{label}]" for label in clickables(page))
            search = "search[<keywords>]"
        # Any search is allowed on any page; one stands for all where nothing else can be done.
        actions = (search,) if page.kind == "search" else clicks
        # Pages do not always show which options are chosen, but equal anchors have to mean equal states.
        anchor = SEPARATOR.join((text, *(f"{name}: {value}" for name, value in sorted(page.chosen.items()))))
        return Observation(text, anchor, admissible_actions=actions, page=page.kind)

    def _next(self, action: str) -> Page | None:
        """The page that an action leads to; None when it is no action or nothing of that name can be clicked."""
        official = compact.to_official(action, self.page) if self.view == "compact" else action
        return None if official is None else self.world.shop.follow(self.page, official)

    def _path_to(self, product: Product, keywords: str) -> list[str] | None:
        """Search, turn pages and open a product; None when it is not among the hits."""
        hits = self.world.shop.search(Page(), keywords).hits
        if product not in hits:
            return None
        turns = hits.index(product) // PAGE_SIZE
        return [f"search[{keywords}]", *[f"click[{NEXT.lower()}]"] * turns, f"click[{product.asin.lower()}]"]

    def _spelled(self, actions: Sequence[str]) -> Sequence[str]:
        """Official actions in the format of this view."""
        if self.view == "full":
            return actions
        page, spelled = Page(), []
        for action in actions:
            spelled.append(compact.from_official(action, page))
            page = self.world.shop.follow(page, action) or page
        return spelled
