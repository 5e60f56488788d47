"""What is known of the environments that cannot be played here yet: `harness plan` needs no package and no data.

A count is the one of the protocol whose tables this project sets out to reproduce (StraTA, arXiv 2605.06642, for the
text environments; Scaffold, arXiv 2609.05511, for the web). Where that protocol leaves a split open, the count is None,
even if the package has a split of its own; the comment beside it says what the package has. Version 0 means: specified,
not playable. An environment that can be played carries its spec itself and does not stand here.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.env import EnvSpec

_ALFWORLD = EnvSpec(
    name="alfworld",
    version=0,
    horizon=50,
    offload=True,
    # The test set is valid_seen: every row that StraTA measured satisfies All = sum(n_i p_i) / 140 with these counts.
    # AgentGym's own lists (2420 train, 200 test) do not fit. Which games StraTA trains on is not said.
    counts={"train": None, "validation": None, "test": 140},
    subsets={"Pick": 35, "Look": 13, "Clean": 27, "Heat": 16, "Cool": 25, "Pick2": 24},
    extra="alfworld",
    data="the ALFWorld game files (json_2.1.1), or games generated from the package's floor plans",
)

_SCIWORLD = EnvSpec(
    name="sciworld",
    version=0,
    horizon=20,
    columns=("score", "success"),
    outcome="score",
    offload=True,
    resource="jvm",
    # 175 follows from the paper's rows: All = (28 Measure + 83 Test-Cond + 44 Find + 5 Chem-Mix + 15 Lifespan) / 175.
    # The package has 3592 train, 1796 dev and 1819 test variations of 30 tasks; which of them train is not said.
    counts={"train": None, "validation": None, "test": 175},
    subsets={"Measure": 28, "Test-Cond": 83, "Find": 44, "Chem-Mix": 5, "Lifespan": 15},
    extra="sciworld",
    data="a Java runtime (17 was tested); the simulator comes with the package",
)


def _web(
    name: str,
    tests: int | None,
    subsets: Mapping[str, int | None],
    data: str,
    *,
    shared: bool = False,
    horizon: int = 30,
) -> EnvSpec:
    """A web environment of Scaffold's protocol: 30 primitive steps, success only, no split besides the test tasks.

    Scaffold explores and tests on one pool; how many tasks its validation part has is not said.
    """
    return EnvSpec(
        name=name,
        version=0,
        horizon=horizon,
        state="shared" if shared else "isolated",
        resource="browser",
        offload=True,
        deterministic=False,
        counts={"train": None, "validation": None, "test": tests},
        subsets=subsets,
        extra="web",
        data=data,
    )


_WEBARENA_SITES = "the WebArena sites, running"
_BROWSER = "a Chromium browser"

_WEB = (
    _web(
        "webarena",
        812,
        {"shopping": 187, "shopping_admin": 182, "gitlab": 180, "map": 109, "reddit": 106, "multi": 48},
        _WEBARENA_SITES,
        shared=True,
    ),
    _web(
        "webarena-lite",
        165,
        {"shopping": 45, "shopping_admin": 35, "gitlab": 30, "map": 26, "reddit": 19, "multi": 10},
        _WEBARENA_SITES,
        shared=True,
    ),
    # The same 812 tasks with checked references and evaluators that need no language model; subsets by what is asked.
    _web("webarena-verified", 812, {"mutate": 374, "retrieve": 325, "navigate": 113}, _WEBARENA_SITES, shared=True),
    _web(
        "visualwebarena",
        910,
        {"shopping": 463, "classifieds": 232, "reddit": 170, "multi": 45},
        "the VisualWebArena sites, running, and the task images",
        shared=True,
    ),
    # Online-Mind2Web: 300 live tasks on 136 sites, in three levels whose sizes change with its revisions.
    _web(
        "mind2web",
        300,
        {"easy": None, "medium": None, "hard": None},
        "the Online-Mind2Web task list (its terms must be accepted), live web sites and a judge model",
    ),
    # OM2W-X, the three domains that Scaffold holds out. The task list has no domain field, so their sizes are open.
    _web(
        "mind2web-x",
        None,
        {"Jobs & Careers": None, "Travel & Transportation": None, "Government & Services": None},
        "the Online-Mind2Web task list with each task's domain added, live web sites and a judge model",
    ),
    # As BrowserGym plays it: 125 of the package's 130 pages, ten steps each. Neither paper reports MiniWoB++.
    _web("miniwob", 125, {}, f"{_BROWSER}; the pages come with the miniwob package", horizon=10),
    # This project's own embedded sites; nothing counts their tasks before they are written.
    _web("sites", None, {}, f"{_BROWSER}; the sites are embedded"),
)

SPECS: dict[str, EnvSpec] = {spec.name: spec for spec in (_ALFWORLD, _SCIWORLD, *_WEB)}
"""Specifications by name."""
