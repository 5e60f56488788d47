"""`harness doctor`: is the installation whole, does a plug-in keep its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_ENV = "webshop"


def doctor(
    env: Annotated[str | None, typer.Option("--env", help="check this environment, or play the others on it")] = None,
    method: Annotated[str | None, typer.Option("--method", help="check this method")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="SPEC", help="model to check, or to play with")
    ] = None,
    view: Annotated[
        str | None, typer.Option("--view", metavar="full|compact", help="rendering that is checked")
    ] = None,
    env_data: Annotated[Path | None, typer.Option("--env-data", help="official data of the environment")] = None,
) -> None:
    """Check the installation or a plug-in.

    A method, an environment or a model is held against its contract. Exits 1 if a check fails.
    """
    from harness import doctor as checks

    if method is not None:
        title = f"method {method} on {env or DEFAULT_ENV}"
        findings = checks.method_findings(method, env=env or DEFAULT_ENV, model=model)
    elif model is not None:
        title = f"model {model}"
        findings = checks.model_findings(model, env=env or DEFAULT_ENV)
    elif env is not None:
        title = f"environment {env}"
        findings = checks.env_findings(env, view=view, data=None if env_data is None else str(env_data))
    else:
        title = "installation"
        findings = checks.installation()
    typer.echo(title)
    for finding in findings:
        typer.echo(f"  {finding}")
    failed = sum(finding.outcome == "fail" for finding in findings)
    typer.echo(f"{failed} of {len(findings)} checks failed" if failed else f"{len(findings)} checks, none failed")
    if failed:
        raise typer.Exit(1)
