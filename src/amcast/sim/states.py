"""What a process of a world is."""

from typing import Final

from mypy_extensions import i64

UP: Final[i64] = 0
CRASHED: Final[i64] = 1
PAUSED: Final[i64] = 2
DYING: Final[i64] = 3  # crashes in the middle of what its next step sends
