"""One run, one writer: a lock on the run's folder, and the folder itself made or refused."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import InputError, RunError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def make_folder(folder: Path) -> None:
    """Make the folder that a run writes to, with its parents.

    Raises:
        InputError: it cannot be made or written to.
        RunError: the disk is full.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        if error.errno in _FULL:
            raise RunError(f'disk is full: cannot write to "{folder}"; free some space and run it again') from error
        raise InputError(f'cannot write to "{folder}": {error.strerror}; name another folder with --out') from error


@contextmanager
def run_lock(run_dir: Path) -> Iterator[None]:
    """Hold a run's folder for one process, whose id and host stand in `run.lock.json` meanwhile.

    The kernel frees the lock when its holder dies, however it dies, so a killed run needs no cleaning up.

    Raises:
        InputError: another process holds it (named with its host), or the folder cannot be written.
        RunError: the disk is full.
    """
    from filelock import FileLock, Timeout

    make_folder(run_dir)
    lock, note = FileLock(run_dir / "run.lock"), run_dir / "run.lock.json"
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(
            f'another run holds "{run_dir}" ({_holder(note)}); wait for it or stop it, '
            "then the same command goes on where it was"
        ) from error
    try:
        note.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    try:
        holder = json.loads(note.read_text())
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError):
        return "process unknown: it is only starting, or just ending"
