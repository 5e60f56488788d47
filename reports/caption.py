"""The words around a table: a caption that says what the numbers are, notes that say where they are weak."""

from __future__ import annotations

from collections import defaultdict

from reports.notes import designs, excluded_note, footnotes
from reports.tables import LEVEL, Measured, Table
from results.papers import Cell, about


def caption(table: Table) -> str:
    """What was measured and published, by which design the marks were set, and over which family."""
    return " ".join([_measured(table), *_published(table), *_marks(table), *_starting_policies(table)])


def notes(table: Table) -> list[str]:
    """Weaknesses and provenance, each a sentence."""
    found = []
    if table.excluded:
        found.append(excluded_note(table.excluded))
    for env in table.spec.envs:
        there = f" on {env}" if len(table.spec.envs) > 1 else ""
        missing = [row.spec.label for row in table.rows if env not in row.runs]
        if len(missing) < len(table.rows) and env not in table.reference.runs:
            found.append(f"No run of the reference {table.reference.spec.label}{there}: nothing is compared.")
        if missing:
            found.append(f"Not run{there}: {', '.join(missing)}.")
    found += [f"Not comparable: {reason} ({', '.join(who)})." for reason, who in _reasons(table).items()]
    if any(cell.certainty == "uncertain" for cell in printed(table)):
        found.append("?: read from the paper with less certainty; results/papers says why.")
    found += footnotes(table.family)
    found += table.spec.notes
    found += table.remarks
    if table.runs:
        found.append(f"Runs: {', '.join(run.label for run in table.runs)}.")
    return found


def printed(table: Table) -> list[Cell]:
    """Every published cell that the table shows."""
    return [value for row in table.rows for cell in row.cells for value in cell.published.values() if value]


def _measured(table: Table) -> str:
    labels = [column.label for column in table.spec.columns]
    columns = " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
    measured: dict[str, list[Measured]] = defaultdict(list)
    for row in table.rows:
        for column, cell in zip(table.spec.columns, row.cells, strict=True):
            if cell.measured:
                measured[table.spec.env_of(column)].append(cell.measured)
    if not measured:
        return f"{table.spec.title}: {columns} in percent; nothing was run."
    told = []
    for env, sizes in measured.items():
        tasks, seeds = max(size.n_tasks for size in sizes), sizes[0].n_seeds
        spread = f"mean ± sd over {seeds} seeds (sd with ddof 1)" if seeds > 1 else "mean of 1 seed"
        told.append(f"{spread} on {tasks} tasks{f' of {env}' if len(table.spec.envs) > 1 else ''}")
    return f"{table.spec.title}: {columns} in percent, {'; '.join(told)}."


def _published(table: Table) -> list[str]:
    if table.spec.paper is None:
        return []
    paper = about(table.spec.paper)
    models = ", ".join(f"{heading} = {model}" for model, heading in table.spec.backbones.items())
    text = f"Published: {paper.paper} (arXiv {paper.arxiv}), {table.spec.table}, {models}; mean ± sd as printed"
    if any(cell.quoted for cell in printed(table)):
        text += "; † quoted there from another paper"
    return [text + "."]


def _marks(table: Table) -> list[str]:
    if not table.family:
        return []
    used = designs(found.comparison for found in table.family)
    return [
        f"* Holm p < {LEVEL:g} against {table.reference.spec.label}: {used};"
        f" Holm's family: the {len(table.family)} comparisons of this table."
    ]


def _starting_policies(table: Table) -> list[str]:
    started: dict[str, list[str]] = defaultdict(list)
    for row in table.rows:
        for run in row.runs.values():
            if run.starting_policy:
                started[run.starting_policy].append(row.spec.label)
    return [
        f"{', '.join(who)}: all seeds start from one shipped policy ({policy}), so the spread over seeds does not hold "
        "that of the starting policy."
        for policy, who in started.items()
    ]


def _reasons(table: Table) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in table.rows:
        for run in row.runs.values():
            if table.spec.backbones and not run.comparable and row.spec.label not in reasons[run.reason]:
                reasons[run.reason].append(row.spec.label)
    return reasons
