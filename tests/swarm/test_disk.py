"""Guards the simulated disk: it answers as a real one does, and each of its faults does what its name says."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeGuard

import pytest

from amcast.runtime.machine import Files
from amcast.runtime.sectors import encode_frame
from amcast.swarm.cluster.disk import SYNC, SimDisk, SimFiles
from amcast.swarm.cluster.platter import SECTOR, Folder, Inode, put
from tests.power import FLUSH_JOURNAL, LOSE_JOURNAL, PowerDisk
from tests.tools import examples

DATA = Path("/data")
LOG = DATA / "log-0"


class Died(BaseException):
    pass


class Process:
    """Lives until it is told to die, and counts the time that its calls take."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.died_with_power: bool | None = None
        self.disk: SimDisk | None = None

    def spend(self, what: str, nanoseconds: int) -> None:
        if self.died_with_power is not None:
            raise Died
        self.spent[what] = self.spent.get(what, 0) + nanoseconds

    def die(self, power: bool) -> None:
        self.died_with_power = power
        if power and self.disk is not None:
            self.disk.power_cut()
        raise Died


def started(seed: int) -> tuple[SimDisk, SimFiles]:
    """Return a disk with an empty folder whose name is synced, and the files of a process on it."""
    disk = SimDisk(Random(seed))
    files = disk.mount(Process())
    files.make_folder(DATA)
    files.sync_folder(Path("/"))
    return disk, files


def write_new(files: SimFiles, path: Path, data: bytes, *, sync: bool = True) -> int:
    fd = files.open(path, append=True)
    assert files.write(fd, data) == len(data)
    if sync:
        files.sync(fd)
        files.sync_folder(path.parent)
    return fd


def content(disk: SimDisk, path: Path = LOG) -> bytes:
    return disk.mount(Process()).read(path)


# ---------------------------------------------------------------- beside the real one


def failed(outcome: object) -> TypeGuard[tuple[str, int]]:
    return isinstance(outcome, tuple) and isinstance(outcome[0], str)


class Pair:
    """The same calls on both; results and errors must be equal."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.real, self.folder = Files(), folder
        self.disk = SimDisk(random)
        self.sim = self.disk.mount(Process())
        self.sim.make_folder(DATA)
        self.random = random
        self.descriptors: list[tuple[int, int]] = []  # also of files that are closed

    def call(self, name: str, *arguments: object, **options: bool) -> object:
        def outcome(files: Files, base: Path, which: int) -> object:
            def here(argument: object) -> object:
                if isinstance(argument, Path):
                    return base / argument
                return argument[which] if isinstance(argument, tuple) else argument

            try:
                return getattr(files, name)(*map(here, arguments), **options)
            except OSError as error:
                names = [str(n or "").replace(str(base), "") for n in (error.filename, error.filename2)]
                return type(error).__name__, error.errno, error.strerror, *names

        real, sim = outcome(self.real, self.folder, 0), outcome(self.sim, DATA, 1)
        if name == "open" and isinstance(real, int) and isinstance(sim, int):
            self.descriptors.append((real, sim))
        elif name not in ("free", "place") or failed(real):
            assert sim == real, f"{name} {arguments} {options}: the real one gives {real}, the simulated one {sim}"
        assert failed(real) == failed(sim)
        return real

    def step(self) -> object:
        random = self.random
        path = Path(*random.choices(("a", "b", "log-0"), k=random.choice((1, 1, 2, 2, 3))))
        other = Path(*random.choices(("a", "b", "log-0"), k=random.choice((1, 1, 2, 2, 3))))
        fd = random.choice(self.descriptors[-6:]) if self.descriptors else (9999, 9999)
        data = random.randbytes(random.choice((0, 1, 10, 511, 512, 513, 2000)))
        number = random.choice((-1, 0, 1, 100, 600, 1500, 5000))
        calls: dict[str, Callable[[], object]] = {
            "make_folder": lambda: self.call("make_folder", path),
            "names": lambda: self.call("names", path),
            "exists": lambda: self.call("exists", path),
            "open": lambda: self.call("open", path, append=random.random() < 0.5, new=random.random() < 0.2),
            "open again": lambda: self.call("open", path, append=True),
            "close": lambda: self.call("close", fd),
            "lock": lambda: self.call("lock", fd),
            "read": lambda: self.call("read", path),
            "read_at": lambda: self.call("read_at", path, number, random.randrange(1000)),
            "size": lambda: self.call("size", fd),
            "write": lambda: self.call("write", fd, data),
            "write more": lambda: self.call("write", fd, memoryview(data)),
            "sync": lambda: self.call("sync", fd),
            "truncate": lambda: self.call("truncate", fd, number),
            "replace": lambda: self.call("replace", path, other),
            "remove": lambda: self.call("remove", path),
            "sync_folder": lambda: self.call("sync_folder", path),
            "place": lambda: self.call("place", path),
            "free": lambda: self.call("free", path),
        }
        return calls[random.choice(list(calls))]()

    def tree(self, folder: Path = Path()) -> Iterator[tuple[str, object]]:
        names = self.call("names", folder)
        assert isinstance(names, list)
        for name in names:
            if (self.folder / folder / name).is_dir():
                yield from self.tree(folder / name)
            else:
                yield str(folder / name), self.call("read", folder / name)


def test_same_results_and_errors_as_the_real_one() -> None:
    seen: set[object] = set()
    for seed in range(examples(400)):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            pair = Pair(Path(folder), Random(seed))
            try:
                for _ in range(120):
                    outcome = pair.step()
                    if failed(outcome):
                        seen.add(errno.errorcode[outcome[1]])
                assert dict(pair.tree()) is not None
            finally:
                for real, _ in pair.descriptors:
                    with suppress(OSError):
                        os.close(real)
    missed = {"EBADF", "ENOENT", "EEXIST", "EISDIR", "ENOTDIR", "ENOTEMPTY", "EINVAL"} - seen
    assert not missed, f"never tried: {missed}"


def names_allowed(folder: Folder, real: Path) -> bool:
    """Return whether a power cut may leave a folder like this, in the simulation."""
    state = dict(folder.kept)
    for change in [{}, *folder.pending]:
        put(state, change)
        if set(state) == set(os.listdir(real)) and all(allowed(node, real / name) for name, node in state.items()):
            return True
    return False


def allowed(node: Inode | Folder, real: Path) -> bool:
    if isinstance(node, Folder):
        return real.is_dir() and names_allowed(node, real)
    lengths = [len(node.kept), *(length for _, _, length in node.pending)]
    content = bytearray(node.kept).ljust(max(lengths), b"\0")
    states = [bytes(content)]
    for at, data, _ in node.pending:
        content[at : at + len(data)] = data
        states.append(bytes(content))
    found = real.read_bytes() if real.is_file() else None
    return (
        found is not None
        and min(lengths) <= len(found) <= max(lengths)
        and all(
            any(state[at : at + SECTOR].startswith(found[at : at + SECTOR]) for state in states)
            for at in range(0, len(found), SECTOR)
        )
    )


@pytest.mark.slow
def test_real_power_cuts_do_nothing_that_the_simulation_does_not(tmp_path: Path) -> None:
    lost = kept = 0
    with PowerDisk(tmp_path / "mounted") as real:
        for seed in range(150):
            folder = real.path / f"{seed}"
            folder.mkdir()
            Files().sync_folder(real.path)
            random = Random(seed)
            pair = Pair(folder, random)
            for _ in range(100):
                pair.step()
            for descriptor in {descriptor for descriptor, _ in pair.descriptors}:
                with suppress(OSError):
                    os.close(descriptor)
            if random.random() < 0.3:
                subprocess.run(
                    ["sync", "-f", folder], check=True
                )  # a system may write out whatever it likes before the end
            before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            real.cut_power(random.choice((FLUSH_JOURNAL, LOSE_JOURNAL)))
            real.power_on()
            after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
            lost += after != before
            kept += bool(after)
            simulated = pair.disk.look_up(DATA)
            assert isinstance(simulated, Folder)
            assert names_allowed(simulated, folder), f"seed {seed}: {sorted(after)} of {sorted(before)}"
    assert lost > 30 and kept > 30, f"of 150 cuts {lost} lost something, and after {kept} there was something"


def test_outcomes_that_no_power_cut_may_have_are_told(tmp_path: Path) -> None:
    disk, files = started(0)
    fd = write_new(files, LOG, b"a" * 600)
    files.write(fd, b"b" * 600)
    folder = disk.look_up(DATA)
    assert isinstance(folder, Folder)
    for outcome, fine in (
        (b"a" * 600, True),
        (b"a" * 600 + b"b" * 600, True),
        (b"a" * 600 + b"b" * 424 + bytes(100), True),
        (b"a" * 599, False),
        (b"a" * 599 + b"b" * 601, False),
        (b"a" * 600 + b"b" * 300 + bytes(300), False),
        (b"a" * 600 + b"b" * 601, False),
    ):
        (tmp_path / "log-0").write_bytes(outcome)
        assert names_allowed(folder, tmp_path) is fine, outcome
    (tmp_path / "log-0").unlink()
    assert not names_allowed(folder, tmp_path)


def test_lock_of_another_process_gives_the_real_error(tmp_path: Path) -> None:
    holds = f"import os; fd = os.open({str(tmp_path / 'lock')!r}, os.O_RDWR | os.O_CREAT); os.lockf(fd, os.F_TLOCK, 0)"
    command = [sys.executable, "-c", f"{holds}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        fd = Files().open(tmp_path / "lock")
        with pytest.raises(OSError) as real:
            Files().lock(fd)
        other.stdin.close()
    Files().lock(fd)  # who ends gives it up
    os.close(fd)

    disk, first = started(0)
    second = disk.mount(Process())
    first.lock(first.open(DATA / "lock"))
    held = second.open(DATA / "lock")
    with pytest.raises(OSError) as simulated:
        second.lock(held)
    assert type(simulated.value) is type(real.value) and str(simulated.value) == str(real.value)
    first.kill()
    second.lock(held)


def test_number_of_a_closed_descriptor_is_used_again() -> None:
    _, files = started(0)
    first = files.open(DATA / "a")
    files.close(first)
    assert files.open(DATA / "b") == first
    files.close(first)  # closes the other file: so a descriptor that is closed twice is noticed
    with pytest.raises(OSError) as error:
        files.close(first)
    assert error.value.errno == errno.EBADF


# ---------------------------------------------------------------- the power


def test_power_cut_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    old, new = b"o" * 700, b"n" * 2000
    found = set()
    for seed in range(300):
        disk, files = started(seed)
        fd = write_new(files, LOG, old)
        files.write(fd, new)
        disk.power_cut()
        after = content(disk)
        assert after.startswith(old) and len(after) <= 2700
        found.add(after)
        whole = [after[at : at + 512] for at in range(1024, len(after) - 511, 512)]
        assert all(sector in (bytes(512), b"n" * 512) for sector in whole), "half a sector"
        with pytest.raises(OSError):
            files.size(fd)
    assert {old, old + new} < found
    assert any(len(after) == 2700 and 0 in after for after in found), "no hole was ever left"
    assert any(700 < len(after) < 2700 for after in found), "always all of its length or nothing"


def test_power_cut_may_undo_an_overwrite_or_a_truncation() -> None:
    found = set()
    for seed in range(100):
        disk, files = started(seed)
        write_new(files, LOG, b"a" * 1024)
        fd = files.open(LOG)
        files.truncate(fd, 512)
        files.write(fd, b"b" * 512)
        disk.power_cut()
        found.add(content(disk)[:512])
        assert 512 <= len(content(disk)) <= 1024
    assert found == {b"a" * 512, b"b" * 512}


def test_names_hold_up_to_one_of_the_changes_since_the_sync_of_their_folder() -> None:
    found = set()
    for seed in range(200):
        disk, files = started(seed)
        files.close(write_new(files, DATA / "old", b"1"))
        files.close(write_new(files, DATA / "x.new", b"2", sync=False))
        files.replace(DATA / "x.new", DATA / "x")
        files.remove(DATA / "old")
        disk.power_cut()
        found.add(tuple(disk.mount(Process()).names(DATA)))
    assert found == {("old",), ("old", "x.new"), ("old", "x"), ("x",)}


def test_synced_content_needs_a_synced_name() -> None:
    lost = 0
    for seed in range(50):
        disk, files = started(seed)
        files.sync(write_new(files, LOG, b"x", sync=False))
        disk.power_cut()
        lost += "log-0" not in disk.mount(Process()).names(DATA)
    assert 10 < lost < 40


def test_move_to_another_folder_never_leaves_one_file_with_two_names() -> None:
    found = set()
    for seed in range(100):
        disk, files = started(seed)
        write_new(files, LOG, b"x")
        files.make_folder(Path("/aside"))
        files.sync_folder(Path("/"))
        files.replace(LOG, Path("/aside/log-0"))
        disk.power_cut()
        files = disk.mount(Process())
        names = [files.names(DATA), files.names(Path("/aside"))]
        found.add(str(names))
        if names == [["log-0"], ["log-0"]]:
            files.write(files.open(LOG, append=True), b"y")
            assert files.read(Path("/aside/log-0")) == b"x"
    assert len(found) == 4


def test_end_of_a_process_loses_nothing_but_descriptors_and_locks() -> None:
    disk, files = started(0)
    fd = write_new(files, LOG, b"never synced", sync=False)
    files.lock(fd)
    files.kill()
    again = disk.mount(Process())
    assert again.read(LOG) == b"never synced"
    again.lock(again.open(LOG))
    with pytest.raises(OSError) as error:
        files.write(fd, b"more")
    assert error.value.errno == errno.EBADF


@pytest.mark.parametrize("power", (False, True))
def test_death_at_a_call_comes_at_that_call_and_may_tear_a_write(power: bool) -> None:
    found = set()
    for seed in range(60):
        disk, files = started(seed)
        process = Process()
        process.disk = disk
        files = disk.mount(process)
        files.die_at(3, power=power)
        fd = files.open(LOG, append=True)  # 1
        files.write(fd, b"whole")  # 2
        with pytest.raises(Died):
            files.write(fd, b"torn")  # 3
        assert process.died_with_power is power
        with pytest.raises(Died):
            files.names(DATA)
        names = disk.mount(Process()).names(DATA)
        found.add(content(disk) if names else None)
    if power:
        assert None in found and b"" in found
    else:
        assert found == {b"whole" + b"torn"[:n] for n in range(5)}


# ---------------------------------------------------------------- other faults


def test_flipped_bit_is_one_bit_and_stays() -> None:
    data = bytes(1000)
    places = set()
    for seed in range(50):
        disk, files = started(seed)
        write_new(files, LOG, data)
        where = disk.flip_bit()
        assert where is not None and where[0] == LOG
        disk.power_cut()
        changed = [(at, byte) for at, byte in enumerate(content(disk)) if byte]
        assert [at for at, _ in changed] == [where[1]] and changed[0][1].bit_count() == 1
        places.add(where[1])
        assert disk.harm
    assert min(places) < 500 and max(places) >= 900
    assert disk.flip_bit(LOG, -1) == (LOG, 999)
    assert disk.flip_bit(DATA / "no such file") is None


def test_lost_name_stays_lost() -> None:
    disk, files = started(0)
    write_new(files, LOG, b"x")
    assert disk.lose_name() == LOG
    assert files.names(DATA) == []
    disk.power_cut()
    assert disk.mount(Process()).names(DATA) == [] and disk.harm


def test_lost_disk_is_empty() -> None:
    disk, files = started(0)
    write_new(files, LOG, b"x")
    disk.lose()
    assert disk.paths() == [] and not disk.mount(Process()).exists(DATA) and disk.harm


def test_no_copy_has_the_place_of_its_file() -> None:
    """What is read, locked, moved with its folder or without power keeps it. What is copied there and back does not."""
    disk, files = started(1)
    write_new(files, LOG, b"content")
    place = files.place(LOG)
    copy = disk.copy(DATA)
    files.lock(files.open(LOG, append=True))
    disk.power_cut()
    assert disk.mount(Process()).place(LOG) == place
    disk.put_back(copy)
    assert disk.mount(Process()).place(LOG) != place


def test_no_real_copy_has_the_place_of_its_file(tmp_path: Path) -> None:
    files, data = Files(), tmp_path / "data"
    files.make_folder(data)
    files.close(files.open(data / "lock"))
    place = files.place(data / "lock")
    shutil.copytree(data, tmp_path / "copy")
    fd = files.open(data / "lock")
    files.lock(fd)
    files.close(fd)
    data.rename(tmp_path / "moved").rename(data)
    assert files.place(data / "lock") == place
    for _ in range(20):  # the number of a removed file may be given to the next one
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "copy", data)
        assert files.place(data / "lock") != place


def test_older_copy_takes_the_place_of_its_folder() -> None:
    disk, files = started(0)
    fd = write_new(files, LOG, b"1")
    copy = disk.copy(DATA)
    files.write(fd, b"2")
    files.sync(fd)
    write_new(files, DATA / "log-1", b"3")
    for _ in range(2):  # a copy stays as it is, whatever becomes of what was put back
        disk.put_back(copy)
        disk.power_cut()
        assert disk.paths() == [LOG] and content(disk) == b"1"
        write_new(disk.mount(Process()), LOG, b"2")
    disk.lose()
    disk.put_back(copy)  # its folder is made as well
    disk.power_cut()
    assert disk.paths() == [LOG] and content(disk) == b"1" and disk.harm


def test_full_disk_takes_a_part_and_then_nothing_until_something_is_removed() -> None:
    parts = set()
    for seed in range(30):
        disk, files = started(seed)
        write_new(files, DATA / "old", bytes(10_000))
        fd = write_new(files, LOG, b"x" * 100)
        disk.full = True
        free = files.free(DATA)
        assert free < 4096
        if free:
            assert files.write(fd, bytes(5000)) == free
            parts.add(free)
        new = DATA / "new"
        for call in (partial(files.write, fd, b"x"), partial(files.open, new), partial(files.make_folder, new)):
            with pytest.raises(OSError) as error:
                call()
            assert error.value.errno == errno.ENOSPC
        assert files.write(files.open(LOG), b"y" * 50) == 50  # over what is there
        files.sync(fd)
        files.remove(DATA / "old")
        assert files.write(fd, b"z" * 9000) == 9000
        disk.full = False
        assert files.write(fd, bytes(100_000)) == 100_000
    assert len(parts) > 10


def test_real_full_disk_gives_the_same(tmp_path: Path) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError) as real:
        Files().write(fd, b"x")
    os.close(fd)
    disk, files = started(0)
    fd = files.open(LOG)
    disk.full = True
    files.write(fd, bytes(5000))
    with pytest.raises(OSError) as simulated:
        files.write(fd, b"x")
    assert str(simulated.value) == str(real.value) and simulated.value.filename == real.value.filename


def test_slow_disk_takes_longer() -> None:
    def time_of_ten_syncs(slow: float) -> int:
        disk, process = SimDisk(Random(1)), Process()
        disk.slow = slow
        files = disk.mount(process)
        fd = files.open(Path("/log-0"))
        for _ in range(10):
            files.sync(fd)
        return process.spent["sync"]

    assert 5 * SYNC <= time_of_ten_syncs(1.0) <= 20 * SYNC
    assert time_of_ten_syncs(100.0) == pytest.approx(100 * time_of_ten_syncs(1.0), rel=0.01)


def test_failed_sync_fails_once_and_what_it_lost_no_later_sync_brings_back() -> None:
    lost_at_the_cut = lost_from_memory = 0
    for seed in range(100):
        disk, files = started(seed)
        fd = write_new(files, LOG, b"a" * 512)
        files.write(fd, b"b" * 5 * 512)
        disk.failing_sync = 1
        with pytest.raises(OSError) as error:
            files.sync(fd)
        assert error.value.errno == errno.EIO and disk.harm
        files.sync(fd)  # says that all is well
        whole = b"a" * 512 + b"b" * 5 * 512
        assert files.read(LOG) == whole
        files.kill()
        lost_from_memory += content(disk) != whole
        disk.power_cut()
        assert content(disk).startswith(b"a" * 512)
        lost_at_the_cut += content(disk) != whole
    assert lost_at_the_cut > 80 and 20 < lost_from_memory < 80


def test_time_does_not_depend_on_faults() -> None:
    def spent(flips: int) -> dict[str, int]:
        disk, process = SimDisk(Random(3)), Process()
        files = disk.mount(process)
        fd = files.open(Path("/log-0"))
        for _ in range(5):
            files.write(fd, b"x")
            for _ in range(flips):
                disk.flip_bit()
            files.sync(fd)
        return process.spent

    assert spent(0) == spent(2)


def test_written_out_as_programs_see_it(tmp_path: Path) -> None:
    disk, files = started(0)
    write_new(files, LOG, b"x", sync=False)
    disk.write_out(tmp_path)
    assert (tmp_path / "data" / "log-0").read_bytes() == b"x"


# ---------------------------------------------------------------- what it promised


def frame(number: int, text: str = "") -> bytes:
    return encode_frame(number, f"{number} {text}".encode())


def three_frames(seed: int) -> tuple[SimDisk, SimFiles, int]:
    disk, files = started(seed)
    fd = write_new(files, LOG, b"")
    for number in range(3):
        files.write(fd, frame(number))
        files.sync(fd)
    return disk, files, fd


def start_again(disk: SimDisk) -> SimFiles:
    return disk.mount(Process())


def test_disk_that_keeps_what_it_promised_is_believed() -> None:
    for seed in range(50):
        disk, files, fd = three_frames(seed)
        files.write(fd, frame(3))  # not synced: it may be there or not
        disk.power_cut()
        start_again(disk)
        assert disk.shadow.promised(DATA) == 3 and disk.shadow.missing(DATA) == ""
        assert disk.shadow.judge(DATA, 3) == "" == disk.shadow.judge(DATA, 4)
        assert "goes on at frame 2" in disk.shadow.judge(DATA, 2)
        assert "refused" in disk.shadow.judge(DATA, None)
        assert not disk.harm


@pytest.mark.parametrize("fault", ("flip", "name", "copy", "disk"))
def test_who_starts_on_a_disk_that_lost_something_is_wrong_and_who_refuses_is_right(fault: str) -> None:
    disk, files, fd = three_frames(0)
    copy = disk.copy(DATA)
    files.write(fd, frame(3))
    files.sync(fd)
    match fault:
        case "flip":
            disk.flip_bit(LOG, -1)
        case "name":
            disk.lose_name(LOG)
        case "copy":
            disk.put_back(copy)
        case "disk":
            disk.lose()
    disk.power_cut()
    start_again(disk)
    assert "frame" in disk.shadow.missing(DATA)
    assert "started" in disk.shadow.judge(DATA, 4) and "started" in disk.shadow.judge(DATA, 3)
    assert disk.shadow.judge(DATA, None) == ""
    disk.shadow.begin_again(DATA)
    assert disk.shadow.judge(DATA, 0) == "" and disk.shadow.missing(DATA) == ""


def test_frame_whose_name_nobody_synced_is_missed() -> None:
    missed = 0
    for seed in range(30):
        disk, files = started(seed)
        fd = files.open(LOG)
        files.write(fd, frame(0))
        files.sync(fd)
        disk.power_cut()
        start_again(disk)
        missed += bool(disk.shadow.judge(DATA, 0))
        assert not disk.harm
    assert missed


def test_frame_that_was_written_under_another_name_is_promised_with_its_name() -> None:
    disk, files = started(0)
    files.close(write_new(files, DATA / "log-0.new", frame(0)))
    files.replace(DATA / "log-0.new", LOG)
    assert disk.shadow.promised(DATA) == 0
    files.sync_folder(DATA)
    assert disk.shadow.promised(DATA) == 1 and not disk.shadow.complaints
    disk.lose_name(LOG)
    assert "frame 0" in disk.shadow.missing(DATA)


def test_node_that_writes_a_frame_again_has_forgotten_it() -> None:
    disk, files, fd = three_frames(0)
    assert not disk.shadow.complaints
    files.write(fd, frame(2, "another"))
    files.sync(fd)
    assert "frame 2" in disk.shadow.complaints[0]


def test_snapshot_takes_over_the_promise_when_it_is_durable_and_not_before() -> None:
    for synced in (True, False):
        missed = 0
        for seed in range(30):
            disk, files, _ = three_frames(seed)
            files.close(write_new(files, DATA / "snapshot-3.new", b"state" * 300, sync=synced))
            files.replace(DATA / "snapshot-3.new", DATA / "snapshot-3")
            files.sync_folder(DATA)
            files.remove(LOG)
            files.sync_folder(DATA)
            disk.power_cut()
            start_again(disk)
            missed += bool(disk.shadow.missing(DATA)) or content(disk, DATA / "snapshot-3") != b"state" * 300
            if synced:
                assert disk.shadow.judge(DATA, 3) == "" and "goes on at frame 0" in disk.shadow.judge(DATA, 0)
        assert bool(missed) is not synced
    disk, files, _ = three_frames(0)
    write_new(files, DATA / "snapshot-3", b"state")
    disk.flip_bit(DATA / "snapshot-3")
    start_again(disk)
    assert disk.shadow.missing(DATA) == "the content of snapshot-3"


def test_frames_after_a_failed_sync_were_not_promised() -> None:
    disk, files, fd = three_frames(0)
    files.write(fd, frame(3))
    disk.failing_sync = 1
    with pytest.raises(OSError):
        files.sync(fd)
    files.sync(fd)
    assert disk.shadow.promised(DATA) == 3
