"""API reference from signatures and docstrings, and every module's source as a page to link to."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import unsoftmax

ROOMS = {
    "unsoftmax": "What `import unsoftmax as us` gives.",
    "unsoftmax.learners": "One learner per result.",
    "unsoftmax.models": "Reference models, distance and equivalence.",
    "unsoftmax.theory": "Closed forms: unknowns, queries, tolerances.",
    "unsoftmax.oracles": "Oracle stack: what changes answers, what counts them, what keeps them.",
    "unsoftmax.adapters": "Targets: callables, PyTorch, ONNX, servers, token ids.",
    "unsoftmax.probes": "Token designs.",
    "unsoftmax.inversion": "Answers to logits.",
    "unsoftmax.solvers": "Logits to matrices.",
    "unsoftmax.verify": "Fresh queries against a model.",
    "unsoftmax.experiments": "Every result as an experiment.",
    "unsoftmax.errors": "The exception tree.",
}
PACKAGE = Path(unsoftmax.__file__).parent


def write(folder: Path) -> None:
    """Fill `folder` (it is emptied first): index.md, a page per room, source/ with a page per module."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    for path in sorted(PACKAGE.rglob("*.py")):
        _source(path, folder / "source")
    index = ["# Reference", "", "Generated from the docstrings.", ""]
    for room, about in ROOMS.items():
        name = room.rpartition(".")[2]
        (folder / f"{name}.md").write_text(_room(room, about))
        index.append(f"- [`{room}`]({name}.md): {about}")
    (folder / "index.md").write_text("\n".join(index) + "\n")


def source_page(path: Path) -> str:
    """Name of the page that shows a file of the package, below reference/source."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def _source(path: Path, folder: Path) -> None:
    name = source_page(path)
    title = f"unsoftmax/{path.relative_to(PACKAGE)}"
    text = f'---\nsearch:\n  exclude: true\n---\n\n# {title}\n\n````py linenums="1"\n{path.read_text()}````\n'
    (folder / f"{name}.md").write_text(text)


def _room(room: str, about: str) -> str:
    module = importlib.import_module(room)
    lines = [f"# {room}", "", about, ""]
    if room == "unsoftmax":
        members = [(name, getattr(module, name)) for name in module.__all__]
        members = [(name, value) for name, value in members if not inspect.ismodule(value)]
        return "\n".join([*lines, *(line for name, value in members for line in _member(name, value))])
    for part in _modules(module):
        own = [(n, v) for n, v in vars(part).items() if not n.startswith("_") and _defined_in(v, part)]
        if not own and part is not module:
            continue
        if part is not module:
            lines += [f"## {part.__name__.removeprefix(room + '.')}", ""]
        lines += [_escaped(inspect.getdoc(part) or ""), ""]
        for name, value in own:
            lines += _member(name, value)
    return "\n".join(lines)


def _modules(module: ModuleType) -> list[ModuleType]:
    """The module and, for a package, all modules in it."""
    if not hasattr(module, "__path__"):
        return [module]
    found = sorted(m.name for m in pkgutil.walk_packages(module.__path__, f"{module.__name__}."))
    return [module, *(importlib.import_module(name) for name in found)]


def _defined_in(value: Any, module: ModuleType) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__


def _member(name: str, value: Any) -> list[str]:
    lines = [f"### {name}", "", "````py", _signature(name, value), "````", ""]
    doc = inspect.getdoc(value) or ""
    if doc and not doc.startswith(f"{name}("):
        lines += ["````text", doc, "````", ""]
    if inspect.isclass(value):
        methods = [
            (n, m) for n, m in vars(value).items() if not n.startswith("_") and isinstance(m, (classmethod, property))
        ]
        methods += [(n, m) for n, m in vars(value).items() if not n.startswith("_") and inspect.isfunction(m)]
        for method, member in methods:
            target = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            about = (inspect.getdoc(target) or "").split("\n")[0]
            shown = method if isinstance(member, property) else _signature(method, target)
            lines.append(f"- `{shown}`" + (f": {_escaped(about)}" if about else ""))
        lines.append("")
    try:
        # A decorated function stands where it is written, not where its decorator is.
        own = inspect.unwrap(value) if callable(value) else value
        path, line = Path(inspect.getsourcefile(own) or ""), inspect.getsourcelines(own)[1]
    except (TypeError, OSError):
        return lines
    if PACKAGE in path.parents:
        lines += [f"[source](source/{source_page(path)}.md#__codelineno-0-{line})", ""]
    return lines


def _signature(name: str, value: Any) -> str:
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        return name
    # Addresses of default objects would change with every build.
    return name + re.sub(r" at 0x[0-9a-f]+", "", signature).replace("'", "")


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>|~^$])", r"\\\1", text)
