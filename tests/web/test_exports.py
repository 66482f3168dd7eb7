"""What other viewers get: read back by their own rules."""

import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from pages import TRACES, rows_of, simulated
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from amcast.cli import run as amcast
from amcast.core.trace import Event
from amcast.errors import UsageError
from amcast.web.perfetto import write_perfetto
from amcast.web.runs import LOST, DrawnRun, RunRows, about_message, picture_of
from amcast.web.shiviz import MOST_EVENTS, PATTERN, shiviz_log
from amcast.web.svg import draw_svg, draw_violation

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def rows() -> RunRows:
    (found,) = rows_of(simulated(crash="g0/0@6ms")).values()
    return found


@pytest.fixture(scope="module")
def run(rows: RunRows) -> DrawnRun:
    return picture_of(rows)


def test_perfetto_has_a_track_per_process_and_a_flow_per_message(run: DrawnRun) -> None:
    file = io.BytesIO()
    write_perfetto(run, file)
    trace = Trace.FromString(file.getvalue())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    names = {track.name for track in tracks.values()}
    assert set(run.processes) <= names and {"clients", "group g0", "group g1", "group g2"} <= names
    leader = next(track for track in tracks.values() if track.name == "g1/0")
    assert tracks[leader.parent_uuid].name == "group g1"
    events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField("track_event")]
    assert [tracks[event.track_uuid].name for _, event in events] == [event.process for event in run.events]
    begins = {flow: (time, event) for time, event in events for flow in event.flow_ids}
    ends = {flow: (time, event) for time, event in events for flow in event.terminating_flow_ids}
    assert begins.keys() == ends.keys() and len(ends) == sum(end != LOST for _, end in run.arrows) > 500
    for flow, (time, event) in begins.items():
        assert time <= ends[flow][0]
        assert event.name.removeprefix("send ") == ends[flow][1].name.removeprefix("receive ")


def test_shiviz_clocks_tell_causes_from_effects(run: DrawnRun) -> None:
    found = re.findall(PATTERN.replace("(?<", "(?P<"), shiviz_log(run))
    assert len(found) == min(len(run.events), MOST_EVENTS)
    clocks = [json.loads(clock) for _, clock, _ in found]
    own: dict[str, int] = {}
    for (host, _, _), clock in zip(found, clocks, strict=True):
        own[host] = own.get(host, 0) + 1
        assert clock[host] == own[host], "the own entry counts the events of a host"
    for start, end in run.arrows:
        if end != LOST and end < len(clocks):
            assert all(clocks[end].get(host, 0) >= count for host, count in clocks[start].items())


def test_shiviz_gets_no_more_than_it_can_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "run"
    amcast(["sim", "white_box", "--messages", "60", "--trace", "full", "--out", str(trace)])
    capsys.readouterr()
    assert amcast(["export", str(trace), "--format", "shiviz"]) == 0
    out, err = capsys.readouterr()
    assert PATTERN in out and re.search(r"the first 2,000 of [\d,]+ events", err)
    assert (tmp_path / "run.shiviz").read_text().count("\n") == 2 * MOST_EVENTS
    assert amcast(["export", str(trace), "--format", "svg"]) == 2
    assert "expected at most 3,000 in one picture" in capsys.readouterr().err
    assert amcast(["export", str(trace), "--format", "svg", "--since", "5ms", "--until", "8ms"]) == 0
    ET.parse(tmp_path / "run.svg")
    assert amcast(["export", str(trace), "--format", "perfetto", "--message", "c0:1"]) == 0
    assert amcast(["export", str(trace), "--format", "svg", "--message", "nobody:1"]) == 2
    assert "message 'nobody:1' is not in the trace" in capsys.readouterr().err
    assert amcast(["export", str(trace), "--format", "svg", "--run", "other"]) == 2
    assert amcast(["export", str(trace), "--format", "svg", "--message", "c0:1", "--out", "/nowhere/x.svg"]) == 2


def test_svg_shows_every_delivery_and_message_of_a_life(rows: RunRows) -> None:
    life = picture_of(about_message(rows, "c0:1"))
    drawn = ET.fromstring(draw_svg(life, "c0:1"))
    titles = [found.text or "" for found in drawn.iter(f"{SVG}title")]
    for kind, verb in (("deliver", "delivers c0:1"), ("multicast", "multicasts c0:1")):
        assert sum(verb in title for title in titles) == sum(event.kind == kind for event in life.events) > 0
    crossing = sum(life.events[start].process != life.events[start].peer for start, end in life.arrows if end != LOST)
    assert sum("sends" in title for title in titles) == crossing > 5


def test_svg_takes_any_name_for_text() -> None:
    name = "<script>\"&'"
    event = Event("r", "deliver", name, name, 1, 5, message=name)
    drawn = ET.fromstring(draw_svg(picture_of(RunRows([event], 0)), name))
    assert drawn.find(f".//{SVG}script") is None and name in "".join(drawn.itertext())


def test_too_much_for_a_picture_is_refused() -> None:
    with pytest.raises(UsageError, match="expected at most 3,000"):
        draw_svg(picture_of(RunRows([Event("r", "crash", "p", "g", n, n) for n in range(3_001)], 0)))


def test_a_failed_verify_leaves_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found"
    assert amcast(["verify", str(TRACES / "cycle3.jsonl"), "--out", str(out)]) == 1
    drawn = ET.parse(out / "violation.svg").getroot()
    said = ["".join(found.itertext()) for found in drawn.iter(f"{SVG}text")]
    assert [text for text in said if re.match(r"\d\. ", text)] == ["1. a", "2. b", "3. b", "4. c", "5. c", "6. a"]
    assert {"c1", "c2", "c3"} <= set(said), "with the multicasts of its messages"
    assert json.loads((out / "verdicts.json").read_text())["verdicts"][2]["status"] == "violated"
    assert amcast(["verify", str(TRACES / "good.jsonl"), "--out", str(out)]) == 0
    assert not (out / "violation.svg").exists()
    assert amcast(["verify", str(TRACES / "good.jsonl"), "--out", str(out / "verdicts.json")]) == 2
    assert "is a file; expected a folder" in capsys.readouterr().err


def test_a_counterexample_of_which_the_trace_is_gone_is_drawn_from_its_rows() -> None:
    rows = [Event("r", "deliver", f"g0/{n}", "g0", 1, 10 + n, message="m") for n in range(2)]
    drawn = ET.fromstring(draw_violation("agreement", rows, []))
    assert sum("m" in (text.text or "") for text in drawn.iter(f"{SVG}text")) >= 2


def test_marks_of_one_moment_share_a_line() -> None:
    rows = [Event("r", "deliver", "g0/0", "g0", 1 + n, 10, message=name) for n, name in enumerate("ab")]
    said = [text.text for text in ET.fromstring(draw_violation("order", rows, [])).iter(f"{SVG}text")]
    assert "1. a, 2. b" in said
