"""How a node starts: with what is on its disk, with nothing for the first time, or with nothing although it ran before.

Nobody hears of the node before this is done. What it may say then is the protocol's affair: a replica that restarts is
on probation until others have said that it forgot nothing, and one without a disk takes no part until it has their
state.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amcast.core.application import Archiving
from amcast.core.capabilities import Dynamic
from amcast.errors import UsageError
from amcast.runtime.filling import Filling
from amcast.runtime.tracing import ReplicaTrace

if TYPE_CHECKING:
    from amcast.runtime.node import Node


@dataclass(frozen=True)
class How:
    """What an operator says of a start."""

    new: bool  # it is the first
    rejoin: bool  # what is on disk is lost, or not to be trusted
    accept_loss: bool  # nobody need say that nothing was forgotten


def refuse_unfit(node: "Node", how: How) -> None:
    """Raise UsageError for a node that cannot be: before anything is touched."""
    config, protocol = node.config, node.protocol
    if config.durable and not protocol.durable:
        raise UsageError(f"{protocol.name} keeps nothing on disk; set durable = false in {config.path}")
    if config.spare and not protocol.joins:
        raise UsageError(f"{protocol.name} has fixed members; set spare = 0 in {config.path}")
    if how.rejoin and how.accept_loss:
        raise UsageError("--rejoin and --accept-loss exclude each other: who rejoins has nothing that could be lost")
    if how.accept_loss and not config.durable:
        raise UsageError(f"--accept-loss is for replicas with a disk; {config.path} says durable = false")
    if how.rejoin:
        refuse_alone(node)


def refuse_alone(node: "Node") -> None:
    if len(node.config.group(node.me.group)) == 1:
        raise UsageError(f"{node.me.name} is alone in its group: nobody knows what it lost")


def start(node: "Node", how: How) -> None:
    """Start the protocol of a node, and whatever goes with it."""
    config, durability = node.config, node.durability
    node.membership.begin()
    starts = durability.open(new=how.new, rejoin=how.rejoin)
    if starts > 1 and not node.protocol.durable:
        raise UsageError(
            f"{node.me.name} has run before, and a replica of {node.protocol.name} that stops is lost for good: "
            "the others go on without it; for all of them, make a new cluster"
        )
    if node.trace_path is not None:
        node.trace = ReplicaTrace(node.trace_path, config, node.me, node.machine)
        node.filling = Filling(node, node.trace, node.outside)
    if durability.rejoining and not how.rejoin:
        node.log.warning("rejoining again", reason="it was stopped before it had the state of another member")
    rejoins = durability.rejoining or (not config.durable and starts > 1)
    node.versions.begin(durability.described, new=how.new, rejoins=rejoins)
    node.formats.begin(durability.described, rejoins=rejoins)
    if rejoins:
        start_from_nothing(node, starts)
    elif config.durable:
        start_from_disk(node, starts, how)
    else:
        node.engine.process.start(node.now())
        if config.is_spare(node.me) and isinstance(node.engine.process, Dynamic):
            node.engine.process.join_group(node.now())
        if node.executor is not None and isinstance(node.executor.app, Archiving):
            durability.open_history()
    durability.describe(node.versions.began)  # only now: what could not be recovered may be another's
    if not config.durable:
        durability.keep_no_records()


def start_from_disk(node: "Node", starts: int, how: How) -> None:
    """Start with the newest snapshot and the records behind it, exactly as they were synced."""
    assert node.durability.storage is not None
    recovered = node.durability.storage.recover()
    position = 0
    records = recovered.records
    if recovered.snapshot is not None:
        snapshot = node.restore(recovered.snapshot)
        position = snapshot.position
        node.durability.recovered(position)
        records = snapshot.protocol + records  # a snapshot of the protocol is records, too: one way to recover
    records = node.formats.read(records)
    node.durability.open_history(position)  # rows behind it are dropped: they are written again below
    if node.trace is not None:
        node.trace.recovered(position)
    # Also at a first start, without any: an empty disk may have been another one, and `--new` a slip. Only others know.
    node.durable_process().recover(node.now(), records, starts, not recovered.doubt)
    node.durability.doubted = bool(recovered.doubt)
    # What was delivered after the snapshot is delivered again: the application has not seen it in this life.
    again, node.engine.out.deliveries = node.engine.out.deliveries, []
    node.deliver(again, {})
    node.delivered_for_good(again)
    if recovered.cut:
        node.log.warning("torn write cut off", bytes=recovered.cut)
    if recovered.doubt:
        node.log.warning("all others are asked what it may have forgotten", reason=recovered.doubt)
    if how.accept_loss:
        node.log.warning("LOSS ACCEPTED", reason="--accept-loss: it takes part whatever it may have forgotten")
        node.durable_process().trust(node.now())
    process: object = node.engine.process
    if node.config.is_spare(node.me) and isinstance(process, Dynamic) and not process.members:
        process.join_group(node.now())
    node.log.info("recovered", records=len(records), position=node.history.end)


def start_from_nothing(node: "Node", starts: int) -> None:
    """Start without what may be on disk, which is lost or not to be trusted.

    What it says until it has the state of the others is on disk, too, but the next start does not go on from that: it
    rejoins again, until a snapshot of this replica's own is durable (`Durability.rejoining`).
    """
    assert node.durability.storage is not None
    refuse_alone(node)
    node.durability.storage.set_aside()
    node.durability.open_history(0, on_disk=node.config.durable)
    node.durable_process().rejoin(node.now(), starts)
    node.log.warning("rejoining", starts=starts, reason="started without what it knew")
