"""Fenced blocks of the documents, for the tests that run what the documents say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def blocks(document: str, language: str) -> list[str]:
    """Contents of a document's fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / document).read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(document: str) -> list[str]:
    """Command lines of the console blocks: what follows a "$ ", cut at "&&"."""
    lines = [line for block in blocks(document, "console") for line in block.splitlines()]
    shown = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [part.strip() for line in shown for part in line.split("&&")]
