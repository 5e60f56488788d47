"""`harness prepare`: make what a run starts from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.prepare import Recipe


def policy(
    env: Annotated[str, typer.Argument(metavar="ENV", help="environment whose mini policy is made")],
    out: Annotated[Path | None, typer.Option("--out", help="folder; that of the shipped policy by default")] = None,
    override: Annotated[
        list[str] | None, typer.Option("-o", metavar="KEY=VALUE", help="entry of the recipe; repeatable")
    ] = None,
) -> None:
    """Clone a scripted expert into a mini policy.

    Writes weights, vocabulary, recipe and card.
    """
    from harness import registry
    from harness.lock import make_folder
    from harness.prepare import prepare_policy

    recipe = _recipe(override or [])
    registry.load_env(env)
    folder = out or _shipped(env)
    make_folder(folder)
    prepare_policy(env, folder, recipe, tell=typer.echo)
    typer.echo(f"play it with: harness run --method vanilla --env {env} --model mini{f':{folder}' if out else ''}")


def _shipped(env: str) -> Path:
    """Folder where a policy of an environment of ours is looked for.

    Raises:
        InputError: the environment is a plug-in's.
    """
    from importlib.resources import files

    from harness.errors import InputError

    home = Path(str(files("envs"))) / env.replace("-", "_")
    if not home.is_dir():
        raise InputError(f'"{env}" is a plug-in: name a folder with --out, and play it with --model mini:FOLDER')
    return home / "policy"


def _recipe(overrides: list[str]) -> Recipe:
    import yaml
    from pydantic import ValidationError

    from harness.errors import InputError, unknown
    from harness.prepare import Recipe

    given = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(f'-o takes key=value, got "{text}"')
        if key not in Recipe.model_fields:
            raise unknown("entry of the recipe", key, Recipe.model_fields)
        given[key] = yaml.safe_load(value)
    try:
        return Recipe(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"recipe {'.'.join(map(str, first['loc']))}={first['input']!r}: {first['msg']}") from error
