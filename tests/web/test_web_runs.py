"""A run as pictures need it: which receive belongs to which send, the order of lines, and traces without times."""

import json

import numpy as np
import pytest
from pages import rows_in, rows_of, simulated

from amcast.core.trace import Event
from amcast.web.columns import NONE, encode
from amcast.web.runs import LOST, MANY_CLIENTS, DrawnRun, picture_of

MS = 1_000_000


def pictured(events: list[Event]) -> DrawnRun:
    (rows,) = rows_of(events).values()
    return picture_of(rows)


@pytest.mark.parametrize("crash", ["", "g0/0@6ms"])
def test_every_arrow_takes_the_time_of_the_network(crash: str) -> None:
    """With a constant delay of 1 ms an arrow that joins the wrong events takes another time."""
    run = pictured(simulated(crash=crash))
    arrived = [(run.events[start], run.events[end]) for start, end in run.arrows if end != LOST]
    assert len(arrived) == sum(event.kind == "receive" for event in run.events) > 500
    for send, receive in arrived:
        assert (send.process, send.peer, send.type, send.about) == (
            receive.peer,
            receive.process,
            receive.type,
            receive.about,
        )
        assert (receive.time or 0) - (send.time or 0) == (0 if send.process == receive.process else MS)
    under_way = max(run.times) - MS  # whatever was sent after that
    lost = [run.events[start] for start, end in run.arrows if end == LOST and run.times[start] < under_way]
    assert bool(lost) == bool(crash) and all("g0/0" in (send.process, send.peer) for send in lost)


def test_what_was_under_way_when_its_sender_came_back_is_lost() -> None:
    def row(kind: str, process: str, seq: int, time: int, peer: str | None = None) -> Event:
        return Event("r", kind, process, "g", seq, time, peer=peer, type="Beat" if peer else None)

    run = pictured(
        [
            row("send", "a", 1, 0, "b"),
            row("crash", "a", 2, 1),
            row("restart", "a", 3, 5),
            row("send", "a", 4, 6, "b"),
            row("receive", "b", 1, 7, "a"),
        ]
    )
    assert run.arrows == [(0, LOST), (3, 4)]


def test_lines_are_group_by_group_and_numbers_count() -> None:
    names = ["g1/0", "g10/0", "g2/0", "g2/10", "g2/9", "c10", "c9"]
    groups = [name.partition("/")[0] if "/" in name else None for name in names]
    run = pictured([Event("r", "crash", name, group, 1, 1) for name, group in zip(names, groups, strict=True)])
    assert run.processes == ["c9", "c10", "g1/0", "g2/0", "g2/9", "g2/10", "g10/0"]
    many = [Event("r", "crash", f"c{n}", None, 1, 1) for n in range(MANY_CLIENTS + 1)]
    assert pictured([*many, Event("r", "crash", "g0/0", "g0", 1, 1)]).processes[:2] == ["g0/0", "c0"]


def test_the_driver_has_no_line() -> None:
    assert "sim" not in pictured(simulated()).processes


def test_a_trace_without_times_is_drawn_in_causal_steps() -> None:
    (rows,) = rows_in("cycle3.jsonl").values()
    run = picture_of(rows)
    assert run.steps and run.abstract and len(run.arrows) == 6
    assert all(run.times[end] > run.times[start] for start, end in run.arrows)
    for process in run.processes:
        seqs = [event.seq for event in run.events if event.process == process]
        assert seqs == sorted(seqs)


def test_causes_that_go_round_in_a_circle_are_drawn_too() -> None:
    events = [
        Event("r", "receive", "p", "g", 1, peer="q", type="X"),
        Event("r", "send", "p", "g", 2, peer="q", type="Y"),
        Event("r", "receive", "q", "g", 1, peer="p", type="Y"),
        Event("r", "send", "q", "g", 2, peer="p", type="X"),
    ]
    run = pictured(events)
    assert len(run.events) == 4 and len(run.arrows) == 2


def test_columns_hold_what_the_events_say() -> None:
    run = pictured(simulated(crash="g0/0@6ms"))
    data = encode(run, "trace")
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    column = {
        each["name"]: np.frombuffer(
            data, {"f8": "<f8", "u4": "<u4", "u1": "u1"}[each["type"]], each["count"], 4 + length + each["offset"]
        )
        for each in head["columns"]
    }
    assert (4 + length) % 8 == 0 and all(each["offset"] % 8 == 0 for each in head["columns"])
    for place in range(0, len(run.events), 37):
        event = run.events[place]
        assert column["time"][place] == event.time
        assert head["processes"][column["process"][place]] == event.process
        assert head["kinds"][column["kind"][place]] == event.kind
        assert event.type == (None if column["type"][place] == NONE else head["types"][column["type"][place]])
        about = column["about"][column["about_start"][place] : column["about_start"][place + 1]]
        assert tuple(head["messages"][number] for number in about) == (
            (event.message,) if event.message else event.about or ()
        )
    for event in run.events:
        if event.kind == "multicast":
            number = head["messages"].index(event.message)
            groups = column["dest"][column["dest_start"][number] : column["dest_start"][number + 1]]
            assert [head["groups"][group] for group in groups] == list(event.dest or ())
    assert len(column["arrow_from"]) == len(run.arrows) and (column["arrow_to"] == NONE).sum() > 0
