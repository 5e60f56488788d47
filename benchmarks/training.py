"""Training speed: one iteration of each policy-gradient method, and its updates beside a plain padded loop.

    python -m benchmarks.training --model mini --tasks 8 --threads 1 --repeats 5 --seed 0

A method explores the tasks (64 episodes in the mini preset) and learns from them, from its starting weights. Its
mini-batches are kept, and both loops take the same optimiser steps on them from the same weights, in turns, in one
process: the harness's (`micro_batches`, then `TransformersModel.update`) and the peer's (`benchmarks.padded_loop`,
where its padding stands). The weights that they end with have to agree, or the benchmark fails.

Tokens are counted as they go through the network (computed) and as the rows need them (used: each row's prompt and
response without its last token, which is predicted and never read). What rows begin with goes through the harness's
network once, so that less can be computed than is used; waste is the share of computed tokens that are padding.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchmarks.padded_loop import MiniBatch, PaddedLoop
from benchmarks.rollout import ENV, WARM_UP, Setting, open_setting
from harness import registry
from harness.arena import Arena
from harness.batching import Lane
from harness.experience import Experience
from harness.model import Loss, MicroBatch, OptimizerConfig, UpdateStats
from harness.models.scoring import Reading
from harness.models.transformers import TransformersModel
from harness.seeding import generator
from harness.training.packing import micro_batches
from harness.training.policy_gradient import PolicyGradient

METHODS = ("grpo", "rloo", "ppo", "gigpo", "strata")
TOLERANCE = 1e-5
"""Largest difference of a weight after the last update; both loops compute in float64 for this."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens, and queries x keys of the attention, that the updates of one iteration take."""

    computed: int
    used: int
    padding: int
    pairs: int

    @property
    def waste(self) -> float:
        return self.padding / self.computed


@dataclass(frozen=True, slots=True)
class Peer:
    """The padded loop's rows of a pass, and whether it pads to the longest of the mini-batch."""

    rows: int = 32
    whole: bool = False


@dataclass(slots=True)
class Measured:
    """One method.

    Attributes:
        episodes, rows, updates: of the iteration; `rows` counts those with a gradient.
        rollout_s, train_s: process time of the iteration's two parts, `learn` as a whole in the second.
        ours, peers: tokens of the updates.
        seconds: process time of all updates, (harness, peer) for each repeat.
        difference: largest of a weight after the updates, in float64.
        rss: peak resident memory of the process in MiB: explored, then after the harness's updates, then the peer's.
    """

    method: str
    episodes: int
    rows: int
    updates: int
    rollout_s: float
    train_s: float
    ours: Tokens
    peers: Tokens
    difference: float
    rss: tuple[float, float, float]
    seconds: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def recorded(model: TransformersModel, seed: int) -> Iterator[list[MiniBatch]]:
    """The mini-batches on which the model is updated inside, each in a seeded order of its rows."""
    taken: list[MiniBatch] = []
    update = model.update

    def keep(loss: Loss, batches: Sequence[MicroBatch], *, temperature: float) -> UpdateStats:
        taken.append(_mini_batch(loss, batches, temperature, generator(seed, "benchmark rows", len(taken))))
        return update(loss, batches, temperature=temperature)

    model.update = keep  # type: ignore[method-assign]
    try:
        yield taken
    finally:
        del model.update  # type: ignore[attr-defined]


def _mini_batch(
    loss: Loss, batches: Sequence[MicroBatch], temperature: float, random: np.random.Generator
) -> MiniBatch:
    """Rows of micro-batches in a random order, as a mini-batch is drawn: micro-batches are sorted by length."""
    rows = [row for batch in batches for row in batch.rows]
    weights = np.concatenate([batch.weights.numpy() for batch in batches])
    arrays = {
        name: [
            line[: len(row.ids)].numpy()
            for batch in batches
            for row, line in zip(batch.rows, batch.arrays[name], strict=True)
        ]
        for name in batches[0].arrays
    }
    order = random.permutation(len(rows))
    return MiniBatch(
        rows=[rows[i] for i in order],
        weights=weights[order],
        arrays={name: [values[i] for i in order] for name, values in arrays.items()},
        loss=loss,
        temperature=temperature,
    )


def explore(setting: Setting, iteration: int) -> tuple[list[Experience], Arena, float]:
    """Experience of all tasks in one lane, and the process seconds it took."""
    started = time.process_time()
    with setting.world(lane := Lane()) as world:
        arenas = [
            Arena(world, phase="train", iteration=iteration, slot=slot, sampling=setting.sampling)
            for slot in range(len(setting.tasks))
        ]
        pairs = zip(setting.tasks, arenas, strict=True)
        found = lane.run(lane.gather([setting.method.explore(task, arena) for task, arena in pairs]))
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return list(found), arenas[0], time.process_time() - started


def cut(batch: MiniBatch, max_tokens: int) -> list[MicroBatch]:
    """The harness's micro-batches."""
    return micro_batches(batch.rows, batch.weights, batch.arrays, max_tokens=max_tokens)


def our_tokens(network: Any, batches: Sequence[MiniBatch], max_tokens: int) -> Tokens:
    """What the harness's updates compute."""
    readings = [
        Reading.of(network, part.rows, torch.device("cpu")) for batch in batches for part in cut(batch, max_tokens)
    ]
    return Tokens(
        computed=sum(reading.tokens for reading in readings),
        used=sum(reading.used for reading in readings),
        padding=sum(0 if reading.shared else reading.tokens - reading.used for reading in readings),
        pairs=sum(_pairs(reading) for reading in readings),
    )


def _pairs(reading: Reading) -> int:
    if reading.shared:
        return sum(block.mask.numel() for block in reading.arguments["tree"].blocks)
    lines, width = reading.arguments["input_ids"].shape
    return int(lines * width * width)


def updated(
    model: TransformersModel, batches: Sequence[MiniBatch], optimizer: OptimizerConfig, max_tokens: int
) -> float:
    """The harness's updates in place from a fresh optimiser; process seconds."""
    model.configure(optimizer)
    started = time.process_time()
    for batch in batches:
        model.update(batch.loss, cut(batch, max_tokens), temperature=batch.temperature)
    return time.process_time() - started


def peer_updated(
    network: Any, batches: Sequence[MiniBatch], optimizer: OptimizerConfig, peer: Peer
) -> tuple[float, PaddedLoop]:
    """The peer's."""
    loop = PaddedLoop(network, optimizer, rows=peer.rows, whole=peer.whole)
    started = time.process_time()
    for batch in batches:
        loop.update(batch)
    return time.process_time() - started, loop


def largest_difference(
    network: Any, batches: Sequence[MiniBatch], optimizer: OptimizerConfig, max_tokens: int, peer: Peer
) -> float:
    """Of any weight after both loops' updates, in float64.

    In float32 a gradient that is 0 but for rounding has either sign, and Adam's first step moves its weight by the
    whole learning rate.
    """
    from harness.models.scoring import scores

    ours, theirs = copy.deepcopy(network).double(), copy.deepcopy(network).double()
    steps = torch.optim.AdamW(
        ours.parameters(), lr=optimizer.lr, betas=optimizer.betas, eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
    )  # fmt: skip
    for batch in batches:
        steps.zero_grad(set_to_none=True)
        for part in cut(batch, max_tokens):
            output = batch.loss(*scores(ours, part, batch.temperature, torch.device("cpu")), part)
            output.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(ours.parameters(), optimizer.max_grad_norm)
        steps.step()
    peer_updated(theirs, batches, optimizer, peer)
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    return max(float((one - other).detach().abs().max()) for one, other in pairs)


def measure(setting: Setting, *, repeats: int, peer: Peer) -> Measured:
    """One iteration of a method, after one that is not counted; then its updates by both loops in turns.

    Raises:
        ValueError: a method that trains no policy, or an iteration in which no row has a gradient.
        RuntimeError: weights that do not agree.
    """
    method, model = setting.method, setting.model
    if not isinstance(method, PolicyGradient):
        raise ValueError(f"{method.name} trains no policy; choose among {', '.join(METHODS)}")
    start = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    c = method.config
    optimizer = OptimizerConfig(c.lr, c.weight_decay, max_grad_norm=c.max_grad_norm)
    last = method.iterations - 1  # warm-ups of a method, such as PPO's of its critic, are over then
    experiences, arena, _ = explore(setting, WARM_UP)
    asyncio.run(method.learn(experiences, arena, last))
    model.network.load_state_dict(start)
    model.configure(optimizer)
    experiences, arena, rollout_s = explore(setting, last)
    explored = peak_rss()
    started = time.process_time()
    with recorded(model, setting.seed) as batches:
        asyncio.run(method.learn(experiences, arena, last))
    train_s = time.process_time() - started
    if not batches:
        raise ValueError(f"no row of {method.name} has a gradient with seed {setting.seed}; take another --seed")
    after_ours = peak_rss()
    model.network.load_state_dict(start)
    other = copy.deepcopy(model.network)
    _, loop = peer_updated(other, batches, optimizer, peer)
    rss = (explored, after_ours, peak_rss())
    ours = our_tokens(model.network, batches, c.micro_batch_tokens)
    difference = largest_difference(model.network, batches, optimizer, c.micro_batch_tokens, peer)
    if difference > TOLERANCE:
        raise RuntimeError(f"{method.name}: a weight differs by {difference:.0e} after the two loops' updates")
    seconds: list[tuple[float, float]] = []
    for repeat in range(repeats):
        taken = [0.0, 0.0]
        for side in (0, 1) if repeat % 2 else (1, 0):
            network = (model.network, other)[side]
            network.load_state_dict(start)
            taken[side] = (
                peer_updated(network, batches, optimizer, peer)[0]
                if side
                else updated(model, batches, optimizer, c.micro_batch_tokens)
            )
        seconds.append((taken[0], taken[1]))
    return Measured(
        method=method.name,
        episodes=sum(len(experience.played) for experience in experiences),
        rows=sum(len(batch.rows) for batch in batches),
        updates=len(batches),
        rollout_s=rollout_s,
        train_s=train_s,
        ours=ours,
        peers=Tokens(loop.computed, ours.used, loop.computed - ours.used, loop.pairs),
        difference=difference,
        rss=rss,
        seconds=seconds,
    )


def peak_rss() -> float:
    """Peak resident memory of this process so far, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def table(measured: Sequence[Measured]) -> str:
    """One column a method; times are medians over the repeats, ratios are taken within a repeat."""
    lines = [f"{'':40}" + "".join(f"{m.method:>18}" for m in measured)]

    def row(name: str, value: Callable[[Measured], Any], shape: str = ",") -> None:
        lines.append(f"{name:40}" + "".join(f"{value(m):>18{shape}}" for m in measured))

    def median(m: Measured, side: int) -> float:
        return float(np.median([pair[side] for pair in m.seconds]))

    def ratio(m: Measured) -> str:
        ratios = [peer / ours for ours, peer in m.seconds]
        return f"{np.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"

    row("episodes", lambda m: m.episodes)
    row("rows with a gradient", lambda m: m.rows)
    row("updates", lambda m: m.updates)
    row("rollout, cpu s", lambda m: m.rollout_s, ".2f")
    row("train, cpu s", lambda m: m.train_s, ".2f")
    row("rollout share of the iteration", lambda m: m.rollout_s / (m.rollout_s + m.train_s), ".0%")
    row("tokens used", lambda m: m.ours.used)
    for name, side in (("harness", 0), ("peer", 1)):
        tokens: Callable[[Measured], Tokens] = (lambda m: m.peers) if side else (lambda m: m.ours)
        row(f"{name}: tokens computed", lambda m, t=tokens: t(m).computed)
        row(f"{name}: computed / used", lambda m, t=tokens: t(m).computed / t(m).used, ".2f")
        row(f"{name}: waste (padding / computed)", lambda m, t=tokens: t(m).waste, ".1%")
        row(f"{name}: attention pairs computed", lambda m, t=tokens: t(m).pairs)
        row(f"{name}: updates, cpu s", lambda m, s=side: median(m, s), ".2f")
        row(f"{name}: used tokens/s of cpu time", lambda m, s=side: m.ours.used / median(m, s), ",.0f")
    row("peer's time / harness's", ratio, "")
    row("largest difference of a weight", lambda m: m.difference, ".1e")
    row("peak RSS after exploring, MiB", lambda m: m.rss[0], ",.0f")
    row("peak RSS after learning, MiB", lambda m: m.rss[1], ",.0f")
    row("peak RSS after the peer's updates, MiB", lambda m: m.rss[2], ",.0f")
    return "\n".join(lines)


def run(method: str, args: argparse.Namespace) -> Measured:
    """One method with the mini preset, in a process of its own: memory peaks belong to it alone."""
    torch.set_num_threads(args.threads)
    model = registry.open_model(args.model, registry.ModelContext(ENV, device="cpu"))
    if not isinstance(model, TransformersModel):
        raise ValueError(f"--model {args.model} is of back end {model.backend!r}; both loops train a network in here")
    setting = open_setting(method, model, args.model, tasks=args.tasks, rollouts=1, seed=args.seed)
    return measure(setting, repeats=args.repeats, peer=Peer(args.peer_rows, args.pad == "mini-batch"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="mini", help="mini (the shipped policy), mini:FOLDER or transformers:ID")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="NAME", help=", ".join(METHODS))
    parser.add_argument("--tasks", type=int, default=8, help="tasks of the iteration; 8 episodes each (8)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads of both loops (1)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of both loops' updates (5)")
    parser.add_argument("--seed", type=int, default=0, help="of tasks, environments and sampling (0)")
    parser.add_argument("--peer-rows", type=int, default=32, help="rows of a pass of the peer (32)")
    parser.add_argument(
        "--pad", choices=("pass", "mini-batch"), default="pass", help="what the peer pads to the longest of (pass)"
    )
    args = parser.parse_args(arguments)
    for name in ("tasks", "threads", "repeats", "peer_rows"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    print(
        f"{args.model} on {ENV}, {args.tasks} tasks, {args.threads} thread(s), seed {args.seed}, "
        f"{args.repeats} repeats (medians), cpu time of the process\n"
        f"peer: plain loop over transformers, {args.peer_rows} rows a pass in the mini-batch's order, prompts padded "
        f"on the left and responses on the right to the longest of the {args.pad}\n"
    )
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        print(table(pool.starmap(run, [(method, args) for method in args.methods], chunksize=1)))


if __name__ == "__main__":
    main()
