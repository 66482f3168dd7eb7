"""Guards the log and the snapshots against death and power cuts at every system call, on the simulated disk.

Two oracles that know nothing of each other: what the caller was told is compared with what it finds (nothing that was
committed is missing, nothing is there that was not asked for), and the shadow of the disk judges each start.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.tools import FULL, examples

from amcast.core.topology import message_id
from amcast.core.wire import AppMessage
from amcast.errors import AmcastError, StorageCorrupt, StorageFailure, UsageError
from amcast.runtime.history import History
from amcast.runtime.machine import REAL, Machine
from amcast.runtime.sectors import SECTOR, encode_frame
from amcast.runtime.storage import Storage
from amcast.swarm.cluster.disk import SimDisk
from amcast.swarm.cluster.loop import Died
from amcast.swarm.cluster.platter import Inode

FOLDER = Path("/data/p0")


class Process:
    """A process that only writes to its disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.dead = False

    def spend(self, what: str, nanoseconds: int) -> None:
        if self.dead:
            raise Died

    def die(self, power: bool) -> None:
        self.dead = True
        if power:
            self._disk.power_cut()
        raise Died


class Writer:
    """Commits numbers, and remembers outside of the disk what it was told about them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(Random(seed))
        self.committed: list[int] = []
        self.asked: list[int] = []  # behind those: told nothing about them
        self.starts = 0

    def live(self, calls: int, power: bool) -> None:
        """Start, write and die at one of the calls."""
        files = self.disk.mount(process := Process(self.disk))
        files.die_at(calls, power=power)
        sizes = self.random.choice((100, 500, 10**6))
        limits = replace(REAL.limits, segment_bytes=sizes, part_bytes=sizes, written_at_once=2 * sizes)
        machine = Machine(files=files, limits=limits)
        try:
            storage = Storage(FOLDER, "test p0", machine, new=not self.starts)
            starts = storage.count_start()
            assert starts > self.starts, f"start {starts} after start {self.starts}"
            self.starts = starts
            self._recover(storage)
            while True:
                self._write(storage)
        except Died:
            files.kill()
            assert process.dead

    def _recover(self, storage: Storage) -> None:
        recovered = storage.recover()
        found: list[int] = []
        if recovered.snapshot is not None:
            found = msgspec.msgpack.decode(b"".join(recovered.snapshot), type=list[int])
        found += [int(record) for record in recovered.records]
        told = self.committed
        assert found[: len(told)] == told, f"{len(told)} records were committed, {len(found)} found"
        assert found == (told + self.asked)[: len(found)], "records that nobody wrote"
        complaint = self.disk.shadow.judge(FOLDER, storage.next_frame)
        assert not complaint, complaint
        self.committed, self.asked = found, []  # from now on others may hear of all of it

    def _write(self, storage: Storage) -> None:
        choice = self.random.random()
        if choice < 0.08:
            storage.snapshot([msgspec.msgpack.encode(self.committed)])
            return
        if choice < 0.16:
            storage.begin_snapshot([msgspec.msgpack.encode(self.committed)])
            return
        if storage.saving and choice < 0.4:
            storage.save_some()
            return
        self._commit(storage)

    def _commit(self, storage: Storage) -> None:
        after = len(self.committed)
        self.asked = list(range(after, after + self.random.randint(1, 300)))
        storage.commit([str(number).encode() for number in self.asked])
        self.committed, self.asked = self.committed + self.asked, []


def test_nothing_committed_is_lost_whenever_the_process_or_the_power_ends() -> None:
    for seed in range(examples(400)):
        writer = Writer(seed)
        for _ in range(8):  # in a start, soon after it, or later
            first, last = writer.random.choice(((1, 20), (20, 35), (30, 100)))
            writer.live(writer.random.randint(first, last), power=writer.random.random() < 0.5)
        assert not writer.disk.shadow.complaints and not writer.disk.harm


def test_rows_before_a_snapshot_are_there_after_a_power_cut() -> None:
    """They are not delivered again, so that nothing else could bring them back."""
    for seed in range(examples(100)):
        disk = SimDisk(Random(seed))
        machine = Machine(files=disk.mount(Process(disk)), limits=replace(REAL.limits, file_bytes=1000))
        machine.files.make_folder(FOLDER)
        for parent in FOLDER.parents:
            machine.files.sync_folder(parent)
        end = 0
        for _ in range(4):
            history = History(FOLDER / "history", end, machine)
            assert history.earliest == 0 and history.end == end
            for position in range(end, end + 20):
                history.append([(AppMessage(message_id(9, position), (0,), b"x" * 90), position << 8)], 1)
                history.write(history.take_unwritten())
            history.sync()
            machine.files.sync_folder(FOLDER)  # as the storage does when it begins a snapshot
            end = history.end
            history.append([(AppMessage(message_id(9, end), (0,), b"behind it"), end << 8)], 1)
            history.write(history.take_unwritten())
            disk.power_cut()
            machine = replace(machine, files=disk.mount(Process(disk)))
        history = History(FOLDER / "history", end, machine)
        position = 0
        while position < end:
            position = history.read(position, 10**6)[1]


@pytest.mark.parametrize("lost", (False, True), ids=("disk-kept", "disk-lost"))
def test_a_rejoin_that_is_cut_short_is_not_taken_for_a_replica_that_promised_nothing(lost: bool) -> None:
    ends = set()
    for seed in range(examples(400)):
        disk = SimDisk(Random(seed))
        storage = Storage(FOLDER, "test p0", replace(REAL, files=disk.mount(Process(disk))))
        storage.recover()
        storage.commit([b"own"])
        storage.close()
        if lost:
            disk.lose()
        files = disk.mount(Process(disk))
        files.die_at(Random(seed).randint(1, 120), power=seed % 2 == 0)
        with suppress(Died):
            storage = Storage(FOLDER, "test p0", replace(REAL, files=files), rejoin=True)
            storage.begin_rejoin()
            storage.set_aside()
            storage.snapshot([b"of others"])
            storage.end_rejoin()
        files.kill()
        ends.add(what_a_plain_start_sees(disk))
        if disk.lose_name(FOLDER / "rejoining") is not None:
            with suppress(AmcastError):  # the seal misses it, too
                assert what_a_plain_start_sees(disk) in ("no data", "state of others", "" if lost else "its own")
    assert ends == {"no data" if lost else "its own", "rejoining", "state of others"}


def what_a_plain_start_sees(disk: SimDisk) -> str:
    files = disk.mount(Process(disk))
    try:
        storage = Storage(FOLDER, "test p0", replace(REAL, files=files), new=False)
        if storage.rejoining:
            return "rejoining"
        found = storage.recover()
    except UsageError:
        return "no data"
    finally:
        files.kill()
    if found.snapshot is not None:
        return "state of others" if found.snapshot == [b"of others"] else "something else"
    return "its own" if found.records == [b"own"] else "nothing"


@pytest.mark.parametrize("fault", ("full", "sync"))
def test_disk_error_is_told_once_and_nothing_committed_is_lost(fault: str) -> None:
    told = set()
    for seed in range(examples(160)):
        writer = Writer(seed)
        writer.live(60, False)
        files = writer.disk.mount(Process(writer.disk))
        storage = Storage(FOLDER, "test p0", replace(REAL, files=files), new=False)
        writer._recover(storage)
        if fault == "full":
            writer.disk.full = True
        else:
            writer.disk.failing_sync = 1
        with pytest.raises(StorageFailure) as error:
            for _ in range(1000):
                writer._write(storage)
        told.add(str(error.value).split(";")[0])
        with pytest.raises(StorageFailure):
            storage.commit([b"more"])
        storage.close()
        writer.disk.full = False
        writer.disk.power_cut()
        writer.live(60, False)
    assert all(reason in str(told) for reason in (("No space left",) if fault == "full" else ("Input/output error",)))


def test_damage_is_refused_or_hits_nothing_that_was_promised() -> None:
    refused = 0
    for seed in range(examples(200)):
        writer = Writer(seed)
        for _ in range(4):
            writer.live(writer.random.randint(20, 100), True)
        if writer.random.random() < 0.5:
            writer.disk.flip_bit()
        else:
            writer.disk.lose_name()
        try:
            writer.live(60, False)
        except AmcastError:
            refused += 1
            assert not writer.disk.shadow.judge(FOLDER, None)
    assert refused > 10


def test_what_a_failed_sync_left_in_memory_is_not_taken_for_durable() -> None:
    found = set()
    for seed in range(examples(200)):
        writer = Writer(seed)
        writer.live(writer.random.randint(40, 90), False)
        files = writer.disk.mount(Process(writer.disk))
        storage = Storage(FOLDER, "test p0", replace(REAL, files=files), new=False)
        writer._recover(storage)
        told = len(writer.committed)
        writer.disk.failing_sync = 1
        with pytest.raises(StorageFailure):
            while True:
                writer._write(storage) if seed % 2 else writer._commit(storage)
        files.kill()
        files = writer.disk.mount(Process(writer.disk))
        writer._recover(Storage(FOLDER, "test p0", replace(REAL, files=files), new=False))
        found.add(len(writer.committed) > told)
        writer.disk.power_cut()
        writer.live(60, True)
    assert found == {False, True}, "never was anything left in memory, or always"


# Damage of every kind, in every place


class Sample:
    """A folder with all that there can be: a snapshot, three segments, a torn frame, starts, a seal with records."""

    def __init__(self) -> None:
        self.disk = SimDisk(Random(7))
        limits = replace(REAL.limits, segment_bytes=1100)
        for life in range(2):
            machine = Machine(files=self.disk.mount(Process(self.disk)), limits=limits)
            storage = Storage(FOLDER, "test p0", machine, new=not life)
            storage.count_start()
            storage.recover()
            for number in range(4):
                storage.commit([b"%d" % number, b"x" * 300])
                if life == number == 0:
                    storage.snapshot([b"state"])
            storage.close()
        log = machine.files.open(FOLDER / "log-6", append=True)
        machine.files.write(log, encode_frame(8, b"x" * 900)[:700])
        self.copy = self.disk.copy(FOLDER)
        names = machine.files.names(FOLDER)
        assert names == ["identity", "lock", "log-1", "log-3", "log-6", "place", "seal", "snapshot-1", "starts"]
        self.files = [FOLDER / name for name in names if name not in ("lock", "place")]

    def inode(self, path: Path) -> Inode:
        """Return a file as it was, in the folder as it was."""
        self.disk.put_back(self.copy)
        found = self.disk.look_up(path)
        assert isinstance(found, Inode)
        return found

    def lose_records(self) -> None:
        """Leave of the seal what was synced."""
        seal = self.disk.look_up(FOLDER / "seal")
        assert isinstance(seal, Inode) and len(seal.seen) > SECTOR
        del seal.seen[SECTOR:], seal.kept[SECTOR:]

    def start(self) -> bool:
        """Return whether a node starts; then it has found everything."""
        machine = replace(REAL, files=self.disk.mount(Process(self.disk)))
        try:
            storage = Storage(FOLDER, "test p0", machine, new=False)
            assert storage.count_start() == 3
            found = storage.recover()
        except AmcastError as error:
            assert "\n" not in str(error) and ("--rejoin" in str(error) or "check the data folder" in str(error)), error
            return False
        expected = [b"%d" % number for number in (1, 2, 3, 0, 1, 2, 3)]
        assert found.snapshot == [b"state"] and found.records[::2] == expected, found.records[::2]
        return True


def test_each_flipped_bit_is_refused_or_harms_nothing() -> None:
    sample = Sample()
    harmless = dict.fromkeys((path.name for path in sample.files), 0)
    for path in sample.files:
        for at in range(0, len(sample.inode(path).seen), 1 if FULL else 5):
            for bit in range(8) if FULL else (at % 8,):
                inode = sample.inode(path)
                if path.name != "seal":
                    sample.lose_records()  # which would miss the frames as well
                inode.seen[at] ^= 1 << bit
                inode.kept[at] ^= 1 << bit
                harmless[path.name] += sample.start()
    assert harmless.pop("log-1") > 0, "what is behind the last frame before the next segment is needed by nobody"
    assert harmless.pop("log-6") > 0, "the end of the file cuts off the last sector: it may hold anything"
    assert harmless.pop("seal") > 0, "records behind the last but one"
    assert set(harmless.values()) == {0}, harmless


def test_each_file_cut_anywhere_is_refused_or_harms_nothing() -> None:
    sample = Sample()
    for path in sample.files:
        size = len(sample.inode(path).seen)
        for length in sorted({*range(0, size, 1 if FULL else 29), *range(0, size, SECTOR), 1, size - 1}):
            inode = sample.inode(path)
            del inode.seen[length:], inode.kept[length:]
            harmless = sample.start()
            assert not harmless or path.name in ("log-1", "log-6", "seal"), f"{path.name} of {length} bytes"


def test_each_lost_file_each_two_and_each_three_are_missed() -> None:
    sample = Sample()
    for many in (1, 2, 3):
        for lost in combinations(sample.files, many):
            sample.disk.put_back(sample.copy)
            if many == 1:
                sample.lose_records()
            for path in lost:
                sample.disk.lose_name(path)
            assert not sample.start(), lost


def test_each_damage_of_place_is_a_doubt() -> None:
    disk = SimDisk(Random(7))
    assert doubt_at_a_start(disk, new=True) == doubt_at_a_start(disk) == ""
    inode = disk.look_up(FOLDER / "place")
    assert isinstance(inode, Inode)
    whole = bytes(inode.seen)
    flipped = [
        bytes(byte ^ (at == here) << bit for here, byte in enumerate(whole))
        for at in range(len(whole))
        for bit in range(8)
    ]
    for damaged in (*flipped, *(whole[:length] for length in range(len(whole)))):
        inode.seen[:] = inode.kept[:] = damaged
        assert doubt_at_a_start(disk), damaged
    inode.seen[:] = inode.kept[:] = whole
    assert doubt_at_a_start(disk) == "", "a doubt stays without a reason"
    disk.lose_name(FOLDER / "place")
    assert doubt_at_a_start(disk) and doubt_at_a_start(disk), "the second start believes what the first did not"


def doubt_at_a_start(disk: SimDisk, new: bool = False) -> str:
    storage = Storage(FOLDER, "test p0", replace(REAL, files=disk.mount(Process(disk))), new=new)
    found = storage.recover()
    storage.close()
    return found.doubt


def test_what_is_damaged_in_identity_or_starts_is_repaired_by_a_rejoin() -> None:
    sample = Sample()
    for name in ("identity", "starts"):
        for at in range(len(sample.inode(FOLDER / name).seen)):
            inode = sample.inode(FOLDER / name)
            inode.seen[at] ^= 1
            rejoin(sample.disk)
        sample.disk.put_back(sample.copy)
        sample.disk.lose_name(FOLDER / name)
        rejoin(sample.disk)


def rejoin(disk: SimDisk) -> None:
    machine = replace(REAL, files=disk.mount(Process(disk)))
    storage = Storage(FOLDER, "test p0", machine, new=False, rejoin=True)
    storage.begin_rejoin()
    assert storage.count_start() > 1
    storage.set_aside()
    storage.snapshot([b"of others"])
    storage.end_rejoin()
    storage.commit([b"more"])
    storage.close()
    storage = Storage(FOLDER, "test p0", replace(REAL, files=disk.mount(Process(disk))), new=False)
    assert storage.count_start() > 2
    found = storage.recover()
    assert (found.snapshot, found.records) == ([b"of others"], [b"more"])
    storage.close()
    disk.lose_name(FOLDER / "snapshot-0")  # without it, frames from 0 on would look like all that there ever was
    with pytest.raises(StorageCorrupt, match="snapshot-0: is missing"):
        Storage(FOLDER, "test p0", replace(REAL, files=disk.mount(Process(disk))), new=False).recover()


def test_folder_that_lost_its_identity_is_not_a_new_one() -> None:
    sample = Sample()
    for kept in ("log-6", "snapshot-1", "starts"):
        sample.disk.put_back(sample.copy)
        for path in sample.files:
            if path.name != kept:
                sample.disk.lose_name(path)
        with pytest.raises(UsageError, match=f"{kept} without identity: it is not new; start it with --rejoin"):
            Storage(FOLDER, "test p0", replace(REAL, files=sample.disk.mount(Process(sample.disk))), new=True)
