"""The model classes of an installed engine, read from its sources without running them.

``served``: architectures (as a ``config.json`` names them) that the engine has a class for. ``spare``: those
whose class can have redundant experts. ``placed``: those that load an expert placement. ``all_to_all``: those
whose class calls an all-to-all backend of DeepEP's kind.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from pathlib import Path


def version_of(engine: str) -> str:
    """Package and version that is installed."""
    return f"{engine}=={importlib.metadata.version(engine)}"


def root_of(engine: str) -> Path:
    """Folder of the installed package."""
    found = importlib.util.find_spec(engine)
    if found is None or found.origin is None:
        raise SystemExit(f"{engine} is not installed here")
    return Path(found.origin).parent


def models_of(engine: str) -> dict[str, list[str]]:
    """Architectures by what their classes can do."""
    return {"vllm": _vllm, "sglang": _sglang}[engine](root_of(engine))


#: words by which a class of SGLang knows an all-to-all backend
_EXCHANGES = ("is_deepep", "forward_deepep", "get_moe_a2a_backend().is_none()")


#: where vLLM lists the models that generate text
_TABLES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")


class _Classes:
    """All classes of some files: their bases, methods and the files they stand in."""

    def __init__(self, files: list[Path]):
        self.bases: dict[str, set[str]] = {}
        self.methods: dict[str, set[str]] = {}
        self.files: dict[str, set[Path]] = {}
        self.text = {path: path.read_text(encoding="utf-8") for path in files}
        self.trees = {path: ast.parse(text) for path, text in self.text.items()}
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    bases = {name for base in node.bases for name in [_last_name(base)] if name}
                    inner = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                    self.bases.setdefault(node.name, set()).update(bases)
                    self.methods.setdefault(node.name, set()).update(inner)
                    self.files.setdefault(node.name, set()).add(path)

    def line(self, name: str) -> set[str]:
        """A class and all that it inherits from."""
        found, left = set(), [name]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += self.bases.get(one, ())
        return found

    def says(self, name: str, words: str) -> bool:
        """Whether a file of the class or of what it inherits from has these words."""
        files = {path for one in self.line(name) for path in self.files.get(one, ())}
        return any(words in self.text[path] for path in files)


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _vllm(root: Path) -> dict[str, list[str]]:
    registry = ast.parse((root / "model_executor/models/registry.py").read_text(encoding="utf-8"))
    served: dict[str, str] = {}
    for node in registry.body:
        if isinstance(node, ast.Assign) and _last_name(node.targets[0]) in _TABLES:
            served |= {name: place[1] for name, place in ast.literal_eval(node.value).items()}
    files = [*root.glob("model_executor/models/**/*.py"), *root.glob("models/**/*.py")]
    classes = _Classes(sorted(files))
    spare = [name for name, cls in served.items() if "MixtureOfExperts" in classes.line(cls)]
    return {"served": sorted(served), "spare": sorted(spare), "placed": []}


def _sglang(root: Path) -> dict[str, list[str]]:
    classes = _Classes(sorted(root.glob("srt/models/**/*.py")))
    served = sorted(_entries(classes.trees.values()))
    placed = [
        name
        for name in served
        if any(
            "get_model_config_for_expert_location" in classes.methods.get(one, ())
            for one in classes.line(name)
        )
    ]
    exchanged = [
        name
        for name in served
        if any(classes.says(name, words) for words in _EXCHANGES)
        and not classes.says(name, "forward_deepep branch not implemented")
    ]
    spare = [name for name in served if classes.says(name, "ep_num_redundant_experts")]
    return {
        "served": served,
        "spare": sorted(set(spare) & set(placed)),
        "placed": placed,
        "all_to_all": exchanged,
    }


def _entries(trees: object) -> set[str]:
    """Classes that the files of a folder offer as ``EntryClass``."""
    found: set[str] = set()
    for tree in trees:  # type: ignore[attr-defined]
        for node in tree.body:
            if isinstance(node, ast.Assign) and _last_name(node.targets[0]) == "EntryClass":
                value = node.value
                names = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
                found |= {name for one in names for name in [_last_name(one)] if name}
    return found
