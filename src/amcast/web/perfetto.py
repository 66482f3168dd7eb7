"""A run for ui.perfetto.dev: a track per process under its group, and every message as a flow from send to receive."""

from typing import IO, Any, Final

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from amcast.core.trace import Event
from amcast.web.runs import LOST, DrawnRun

SEQUENCE: Final = 1
STEP: Final = 1_000_000  # nanoseconds that stand for a step where a trace has no times


def write_perfetto(run: DrawnRun, file: IO[bytes]) -> None:
    """Write a whole run as TrackEvent packets."""
    builder: Any = StreamingTraceProtoBuilder(file)
    groups: dict[str, int] = {}
    tracks: dict[str, int] = {}
    for name, group in zip(run.processes, run.groups, strict=True):
        title = "clients" if group is None else f"group {group}"
        if title not in groups:
            groups[title] = len(groups) + len(tracks) + 1
            _add_track(builder, groups[title], title, rank=len(groups))
        tracks[name] = len(groups) + len(tracks) + 1
        _add_track(builder, tracks[name], name, parent=groups[title], rank=len(tracks))
    flows: dict[int, tuple[list[int], list[int]]] = {}  # per event: those that begin, those that end
    for flow, (start, end) in enumerate(run.arrows, start=1):
        if end != LOST:
            flows.setdefault(start, ([], []))[0].append(flow)
            flows.setdefault(end, ([], []))[1].append(flow)
    for place, (event, time) in enumerate(zip(run.events, run.times, strict=True)):
        packet = builder.create_packet()
        packet.timestamp = time * (STEP if run.steps else 1)
        packet.trusted_packet_sequence_id = SEQUENCE
        shown = packet.track_event
        shown.type = TrackEvent.TYPE_INSTANT
        shown.track_uuid = tracks[event.process]
        shown.name = f"{event.kind} {event.type or event.message or ''}".strip()
        shown.categories.append(event.kind)
        begins, ends = flows.get(place, ((), ()))
        shown.flow_ids.extend(begins)
        shown.terminating_flow_ids.extend(ends)
        _annotate(shown, event)
        builder.write_packet(packet)


def _add_track(builder: Any, number: int, name: str, rank: int, parent: int = 0) -> None:
    packet = builder.create_packet()
    packet.trusted_packet_sequence_id = SEQUENCE
    track = packet.track_descriptor
    track.uuid = number
    track.name = name
    track.sibling_order_rank = rank
    track.child_ordering = TrackDescriptor.EXPLICIT
    if parent:
        track.parent_uuid = parent
    builder.write_packet(packet)


def _annotate(shown: Any, event: Event) -> None:
    facts = {
        "message": event.message,
        "about": ", ".join(event.about) if event.about else None,
        "dest": ", ".join(event.dest) if event.dest else None,
        "timestamp": f"{event.ts[0]}, {event.ts[1]}" if event.ts else None,
        "peer": event.peer,
        "bytes": event.size,
        "seq": event.seq,
        "detail": event.detail,
    }
    for name, value in facts.items():
        if value is not None:
            note = shown.debug_annotations.add()
            note.name = name
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value = value
