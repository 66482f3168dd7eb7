"""What a call of the command line gives, and how the real program is started."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from subprocess import Popen

PROGRAM = [sys.executable, "-c", "from amcast.cli import main; main()"]


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Amcast = Callable[..., Result]
Program = Callable[..., "Popen[str]"]
