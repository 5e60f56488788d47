"""The rules of the house, as far as a program can check them: floors, names, sizes, and what no file may hold."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "methods", "baselines", "envs", "results", "reports")
LONGEST = 400
HEAVY = ("torch", "transformers", "pandas", "scipy", "matplotlib", "duckdb", "pyarrow", "numpy", "pydantic")

PICKLES_ITS_OWN = "harness.conformance.env"
"""Checks that tasks survive a process boundary, by pickling what it has made itself."""
UNPICKLERS = {"pickle", "marshal", "shelve", "dill", "joblib"}

CONTRACTS = set("env model experience episode batching arena method seeding errors prompts demonstration".split())
FLOORS = ("types", "contracts", "worlds, models, training, skills", "methods", "results", "reports", "run")


@cache
def modules() -> dict[str, Path]:
    """Every module of the packages: dotted name -> file."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(), filename=str(modules()[name]))


def floor(name: str) -> int:
    """Floor of a module, counted from the ground (`harness.types`)."""
    top, _, rest = name.partition(".")
    second = rest.partition(".")[0]
    if top != "harness":
        return {"envs": 2, "methods": 3, "baselines": 3, "results": 4, "reports": 5}[top]
    if name in ("harness", "harness.types"):  # the package itself holds the version and nothing else
        return 0
    if second in CONTRACTS:
        return 1
    return 2 if second in ("models", "policies", "training", "skills") else 6


def imported(name: str, nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Modules of the project that import statements name; `from a import b` names a.b where that is a module."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} line {node.lineno} imports relatively; write the whole name"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules() else str(node.module))
    return frozenset(other for other in found if other in modules())


@cache
def imports(name: str) -> frozenset[str]:
    """Imports anywhere in a module, those inside functions and those for type checking included."""
    return imported(name, ast.walk(tree(name)))


def test_imports_point_down():
    """Floors of the house, bottom to top: FLOORS. Within a floor anything goes that makes no circle."""
    above = [
        f"{name} ({FLOORS[floor(name)]}) imports {other} ({FLOORS[floor(other)]})"
        for name in modules()
        for other in sorted(imports(name))
        if floor(other) > floor(name)
    ]
    assert not above, "\n".join(above)


def test_results_know_only_the_vocabulary():
    """Stored rows must be readable without the code that made them."""
    for name in modules():
        if name.partition(".")[0] == "results":
            assert {other for other in imports(name) if not other.startswith("results")} <= {"harness.types"}, name


def test_methods_and_environments_are_reached_by_name_only():
    """A harness that imports one method by name favours it; others' plug-ins could not do the same."""
    closed = [
        f"{name} imports {other}; ask harness.registry by name"
        for name in modules()
        for other in sorted(imports(name))
        if name != "harness.registry" and other != "envs.specs" and kind(other) and kind(other) != kind(name)
    ]
    assert not closed, "\n".join(closed)


def kind(name: str) -> str | None:
    """Whose inside a module is: the methods', one environment's, or nobody's."""
    parts = name.split(".")
    if parts[0] in ("methods", "baselines"):
        return "methods"
    return ".".join(parts[:2]) if parts[0] == "envs" else None


def test_no_circular_imports():
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name in done:
            return
        at_import = [node for node in tree(name).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for other in sorted(imported(name, at_import) - {name}):
            visit(other, (*path, name))
        done.add(name)

    for name in modules():
        visit(name, ())


def test_files_are_short_and_say_what_they_are():
    lines = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert not {name: n for name, n in lines.items() if n > LONGEST}
    assert not [name for name in modules() if not ast.get_docstring(tree(name))]


def offences(code: ast.Module) -> Iterator[str]:
    """What no module may do: run foreign code, use global random state, swallow errors."""
    for node in ast.walk(code):
        where = f"line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for unsafe in {name.partition(".")[0] for name in names} & UNPICKLERS:
                yield f"{where} imports {unsafe}, which runs code that data bring along"
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if called in ("eval", "exec", "compile", "__import__"):
                yield f"{where} calls {called}"
            elif called == "torch.load" and keywords.get("weights_only") != "True":
                yield f"{where} calls torch.load without weights_only=True, which unpickles"
            elif re.fullmatch(r"((np|numpy)\.)?random\.[a-z_]+", called) and not called.endswith(".default_rng"):
                yield f"{where} calls {called}: global random state"
        elif isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{where} catches everything, Ctrl-C included"
            if all(isinstance(step, ast.Pass) or ast.unparse(step) == "..." for step in node.body):
                yield f"{where} swallows an error"


def test_no_foreign_code_no_global_state_no_swallowed_errors():
    found = [
        f"{name} {offence}"
        for name in modules()
        for offence in offences(tree(name))
        if not (name == PICKLES_ITS_OWN and "imports pickle" in offence)
    ]
    assert not found, "\n".join(found)


def test_offences_are_found():
    """The check itself."""
    wrong = """
import pickle
from pickle import loads
eval("1")
exec("1")
torch.load(path)
np.random.seed(0)
random.choice(x)
try: f()
except: g()
try: f()
except ValueError: pass
"""
    right = "model.eval()\nre.compile('a')\ntorch.load(p, weights_only=True)\nnp.random.default_rng(0)\nrng.choice(x)\n"
    assert len(list(offences(ast.parse(wrong)))) == 9
    assert not list(offences(ast.parse(right)))


def texts() -> Iterator[Path]:
    """Every text file that a user gets."""
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            hidden = path.name.startswith(".") and path.name not in (".ci", ".gitignore")
            left_behind = path.name in ("__pycache__", "runs", "build", "dist", "venv") or path.suffix == ".egg-info"
            if hidden or left_behind:
                continue
            if path.is_dir():
                folders.append(path)
            elif path.suffix in (".py", ".md", ".toml", ".txt", ".ini", ".cff", ".yaml", ".json", ".j2", ".tex", ""):
                yield path


def test_no_file_names_a_path_or_host_of_one_machine():
    """A user has none of these; the pattern is put together here so that this file does not match itself."""
    folders = "|".join(("work", "farm", "root", "home/[a-z]", "opt/wheels"))
    hosts = "|".join(host + r"\." for host in ("pypi", "pythonhosted", "npmjs", "deb.debian"))
    pattern = re.compile(rf"(?<![\w.])/(?:{folders})/|\.\./{'shared'}|https?://[\w.]*(?:{hosts})")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


def test_help_imports_nothing_heavy():
    """lm-evaluation-harness#3099: seconds of imports before the first line of help."""
    program = (
        "import sys\n"
        "from harness.cli import main\n"
        "code = main(['--help'])\n"
        f"print('heavy:', sorted(set({HEAVY!r}) & set(sys.modules)), 'code:', code)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["heavy: [] code: 0"], done.stderr[-500:]
