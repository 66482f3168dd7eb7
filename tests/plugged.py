"""Packages of examples/, seen by amcast as if they were installed: their metadata lies on the path."""

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "my_protocol"
AMCAST = Path(sys.executable).with_name("amcast")


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


class Plugged:
    """Packages that are found in this folder, and commands that see them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = [str(folder)]

    def install_example(self, example: Path = EXAMPLE) -> None:
        document = tomllib.loads((example / "pyproject.toml").read_text())["project"]
        points = document["entry-points"]
        self.add(document["name"], {group: dict(entries) for group, entries in points.items()})
        self.path.append(str(example / "src"))

    def add(self, package: str, groups: dict[str, dict[str, str]], **modules: str) -> None:
        """Let there be a package with these entry points and modules."""
        metadata = self.folder / f"{package.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [
            f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups.items()
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines))
        for name, source in modules.items():
            (self.folder / f"{name}.py").write_text(source)

    @property
    def pythonpath(self) -> str:
        more = os.environ.get("PYTHONPATH")
        return os.pathsep.join([*self.path, *([more] if more else [])])

    def __call__(self, *arguments: object, program: Path = AMCAST) -> Done:
        done = subprocess.run(
            [str(program), *map(str, arguments)], env=os.environ | {"PYTHONPATH": self.pythonpath},
            text=True, encoding="utf-8", capture_output=True, check=False, cwd=self.folder,
        )  # fmt: skip
        return Done(done.returncode, done.stdout, done.stderr)
