"""A real file system whose power can be cut: ext4 in a file, mounted as a loop device."""

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType

from tests.pace import until
from tests.tools import cannot_run

SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
FLUSH_JOURNAL, LOSE_JOURNAL = 1, 2  # what becomes of names and sizes that were not synced


class PowerDisk:
    """Ends a test where such a file system cannot be mounted: it takes root, mkfs.ext4 and a loop device."""

    def __init__(self, path: Path, megabytes: int = 64) -> None:
        """Mount at this path; what was there is hidden. The file system itself is in a file beside it."""
        self.path = path
        self._image = path.with_name(f"{path.name}.image")
        self._mounted = False
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            cannot_run("no power to cut: a file system is mounted by root only, and made by mkfs.ext4")
        self.path.mkdir(parents=True, exist_ok=True)
        self._image.touch()
        os.truncate(self._image, megabytes * 2**20)
        subprocess.run(["mkfs.ext4", "-q", self._image], check=True)
        done = subprocess.run(["mount", "-o", "loop", self._image, self.path], capture_output=True, text=True)
        if done.returncode != 0:
            cannot_run(f"no power to cut: {done.stderr.strip()}")
        self._mounted = True

    def cut_power(self, journal: int = LOSE_JOURNAL) -> None:
        """Lose what is not on disk. Whoever has a file open there gets errors from now on."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", journal))
        finally:
            os.close(descriptor)

    def power_on(self) -> None:
        """Mount it again, as after a start of the machine. Nobody may have a file open there."""
        self._unmount()
        subprocess.run(["mount", "-o", "loop", self._image, self.path], check=True)
        self._mounted = True

    def _unmount(self) -> None:
        if self._mounted:
            command = ["umount", str(self.path)]  # in vain while a process that was killed is still on its way out
            assert until(lambda: subprocess.run(command, capture_output=True).returncode == 0, 20), f"{command} fails"
            self._mounted = False

    def __enter__(self) -> "PowerDisk":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._unmount()
        else:  # somebody may still be there
            subprocess.run(["umount", "-l", self.path], check=False)
        self._image.unlink()
