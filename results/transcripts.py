"""Transcripts: what was said and done in each episode, compressed, one file a seed and lane.

A lane is written whole when it is done: to a temporary file first, then renamed, so that a reader sees all of it or
nothing. A lane that is run again replaces its file. Small index rows stay apart (`results.store`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from results.store import StoreError

_LEVEL = 10
"""Transcripts repeat their prompts: level 10 halves what level 3 leaves, at a speed far above any rollout's."""


def write_transcripts(path: Path, transcripts: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON line a transcript, zstd-compressed, replacing the file in one step.

    Raises:
        StoreError: the file could not be written; what stood there before is unchanged.
    """
    import zstandard

    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            with zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as compressed:
                for transcript in transcripts:
                    compressed.write(json.dumps(transcript, ensure_ascii=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"could not write transcripts to {path}: {error}; rows are kept, free some space") from error
    finally:
        temporary.unlink(missing_ok=True)


def read_transcripts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the transcripts of one file in the order they were written.

    Raises:
        StoreError: there is no such file, or it is damaged (a whole file ends in a whole line).
    """
    import io

    import zstandard

    if not path.is_file():
        raise StoreError(f"no transcripts at {path}; an unfinished lane has none, the same run command finishes it")
    with path.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        try:
            for line in lines:
                yield json.loads(line)
        except (zstandard.ZstdError, ValueError) as error:
            raise StoreError(f"{path} is damaged: {error}; run its lane again") from error
