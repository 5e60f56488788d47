"""Which words of a title count as nouns."""

import importlib.util
import sys

import pytest

from envs.webshop.nouns import PIPELINES, LexiconNouns, SpacyNouns
from harness.env import DataError

TAGGER = pytest.mark.skipif(
    not any(importlib.util.find_spec(name) for name in PIPELINES), reason="needs the extra abstraction-bench[webshop]"
)


def test_the_lexicon_keeps_its_words_in_order_and_as_often_as_they_stand():
    nouns = LexiconNouns(["Mug", "frame"])
    assert nouns("Slim Mug and mug Frame Norvik") == ("mug", "mug", "frame")
    assert nouns("slim thing") == ()


def test_without_spacy_the_extra_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(DataError, match=r"need spaCy.*pip install abstraction-bench\[webshop\]"):
        SpacyNouns()


@TAGGER
def test_a_missing_pipeline_is_named():
    with pytest.raises(DataError, match=r"no_such_pipeline.*pip install abstraction-bench\[webshop\]"):
        SpacyNouns(["no_such_pipeline"])


@TAGGER
def test_spacy_finds_nouns_and_proper_nouns_in_lower_case():
    nouns = SpacyNouns()
    assert {"cotton", "shirt"} <= set(nouns("A soft cotton shirt for men"))
    assert "soft" not in nouns("A soft cotton shirt for men")
