"""Loads one module from edited source, in every Python process that inherits the environment of a shell mutant.

Python imports a module of this name at its start if its folder is on PYTHONPATH; so nodes, workers of Spark and all
else that a test starts are edited too.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class Edited(SourceFileLoader):
    """Compiles the edited text; what lies in __pycache__ is neither read nor written."""

    def __init__(self, name: str, path: str, edits: list[list[str]], seen: str) -> None:
        super().__init__(name, path)
        self.edits = edits
        self.seen = seen

    def get_code(self, fullname: str) -> CodeType | None:
        text = Path(self.path).read_text(encoding="utf-8")
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ImportError(f"{fullname} has {text.count(old)} places for the mutant's {old!r}, expected one")
            text = text.replace(old, new)
        code = compile(text, self.path, "exec", dont_inherit=True)
        Path(self.seen).touch()
        return code


class Finder:
    def __init__(self, module: str, edits: list[list[str]], seen: str) -> None:
        self.module = module
        self.edits = edits
        self.seen = seen

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None:
            if not isinstance(spec.loader, SourceFileLoader):
                raise ImportError(f"{name} is compiled: a shell mutant can only be of a module that is not")
            spec.loader = Edited(name, spec.loader.path, self.edits, self.seen)
        return spec


if "AMCAST_SHELL_MUTANT" in os.environ:
    sys.meta_path.insert(0, Finder(**json.loads(os.environ["AMCAST_SHELL_MUTANT"])))
