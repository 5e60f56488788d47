"""WebShop's reward: how far a bought product and its chosen options meet a goal.

    reward = type factor * (attribute hits + option hits + 1[price <= limit]) / (attributes + options + 1)

Rules of princeton-nlp/WebShop (Yao et al. 2022, section 3 and appendix), oddities included; numbers must be comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thefuzz import fuzz

from envs.webshop.nouns import Nouns
from envs.webshop.schema import Goal, Product

_COLOR_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim
eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki
lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard
natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver
skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
COLORS = tuple(_COLOR_WORDS.split())
"""WebShop's colour words, alphabetical: the order decides."""

SIMILAR = 85
"""Texts count as the same when thefuzz.token_set_ratio exceeds this."""


@dataclass(frozen=True, slots=True)
class Reward:
    """What a purchase is worth, and why.

    Attributes:
        total: from 0 to 1; 1 is success.
        type_factor: 1, 0.5, 0.1 or 0.
        title_score: share of the goal title's nouns that the bought title has; 0.2 when the goal title has none.
        attributes: one flag per goal attribute, in the goal's order.
        options: one flag per goal option, in the goal's order.
        price: whether the price is within the limit.
    """

    total: float
    type_factor: float
    title_score: float
    attributes: tuple[bool, ...]
    options: tuple[bool, ...]
    price: bool


def reward(product: Product, chosen: Mapping[str, str], goal: Goal, nouns: Nouns) -> Reward:
    """Reward for buying a product.

    Args:
        product: what is bought.
        chosen: option values that were clicked, by option name.
        goal: what was wanted.
        nouns: finds the nouns of titles.
    """
    factor, title_score = _type_factor(product, goal, nouns)
    attributes = tuple(_has_attribute(product, wanted) for wanted in goal.attributes)
    values = [normalize_color(value) for value in chosen.values()]
    options = tuple(_has_option(values, name, wanted) for name, wanted in goal.options.items())
    price = product.price <= goal.price_upper
    share = (sum(attributes) + sum(options) + price) / (len(attributes) + len(options) + 1)
    return Reward(factor * share, factor, title_score, attributes, options, price)


def normalize_color(text: str) -> str:
    """The first colour word that occurs anywhere in the text, else the text: "dark blue" is "blue"."""
    return next((color for color in COLORS if color in text), text)


def _type_factor(product: Product, goal: Goal, nouns: Nouns) -> tuple[float, float]:
    """Whether the bought thing is of the wanted kind: same query, two shared category parts, or shared title nouns."""
    bought, wanted = nouns(product.title), nouns(goal.title)
    title_score = len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2
    if title_score == 0:
        return 0.0, title_score
    if title_score < 0.1:
        return 0.1, title_score
    same_kind = (
        product.query == goal.query or len(_parts(product.category) & _parts(goal.category)) >= 2 or title_score > 0.2
    )
    return (1.0 if same_kind else 0.5), title_score


def _parts(category: str) -> set[str]:
    return {part.strip() for part in category.split("›")}


def _has_attribute(product: Product, wanted: str) -> bool:
    if any(fuzz.token_set_ratio(attribute, wanted) > SIMILAR for attribute in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullets), product.description)
    return any(wanted in text.lower() for text in texts)


def _has_option(values: list[str], name: str, wanted: str) -> bool:
    """Whether any chosen value, its colour normalised, meets a goal option.

    WebShop compares the pair (name, value) of its synthetic goals as one text, and a pair is normalised only when its
    name or value as a whole is a colour word. So any shade of the wanted colour hits.
    """
    text = next((color for color in COLORS if color in (name, wanted)), f"{name} {wanted}")
    return any(fuzz.token_set_ratio(text, value) > SIMILAR for value in values)
