"""The page in a real browser: a large trace, the life of a message, a counter-example, a cluster without its leader."""

import base64
import json
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from pages import long_run, rows_in, rows_of, served, simulated, trace_page
from tests.pace import allow

from amcast.core.trace import Event
from amcast.local.files import create_cluster
from amcast.local.processes import Processes
from amcast.protocols import protocol
from amcast.runtime.client import Client, SyncClient
from amcast.runtime.config import Address
from amcast.web.live import SeenClient, Watch
from amcast.web.server import PageServer

pytestmark = pytest.mark.tool("chromium")

LARGE, VERY_LARGE = 100_000, 300_000
FIRST_PICTURE_S, FRAME_MS = 2.0, 50.0


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Whatever a page complains about, or asks of anybody else, fails the test."""
    chromium.events.clear()
    chromium.size(1400, 860)
    yield chromium
    assert chromium.complaints() == []
    assert all(url.startswith("http://127.0.0.1:") for url in chromium.requests())


def opened(browser: Browser, url: str) -> None:
    browser.open(url)
    browser.until("!!window.amcastView?.trace && amcastView.diagram.drawn > 0")
    browser.until("!!document.documentElement.dataset.judged")
    assert f"{url}data?run=" in " ".join(browser.requests())
    browser.frame()


def inks(browser: Browser, canvas: str) -> int:
    """How many colours a canvas shows."""
    return int(
        browser.run(
            f"""(() => {{ const c = document.querySelector("{canvas}");
            const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
            for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
            return seen.size; }})()"""
        )
    )


def window(browser: Browser) -> tuple[float, float]:
    start, end = browser.run("[amcastView.diagram.from, amcastView.diagram.until]")
    return start, end


def place_of(browser: Browser, script: str) -> tuple[float, float]:
    """Where an event is on the screen."""
    x, y = browser.run(
        f"""(() => {{ const {{diagram, trace}} = amcastView, i = {script};
        const box = diagram.canvas.getBoundingClientRect();
        return [box.left + diagram.x(trace.time[i]), box.top + diagram.y[trace.process[i]]]; }})()"""
    )
    return x, y


def test_a_large_trace_loads_zooms_and_pans(browser: Browser) -> None:
    events = long_run(LARGE)
    with trace_page(rows_of(events)) as url:
        opened(browser, url)
        assert browser.run("amcastView.trace.size") == len(events) >= LARGE
        assert inks(browser, "#diagram") > 20 and inks(browser, "#overview") > 3
        assert browser.run("amcastView.diagram.summarised") is True
        assert "zoom in for single events and arrows" in browser.text("#status")

        start, end = window(browser)
        browser.wheel(700, 400, -400)
        browser.wheel(700, 400, -400)
        closer = window(browser)
        assert start < closer[0] < closer[1] < end and closer[1] - closer[0] < (end - start) / 2
        browser.drag(700, 400, 500, 400)
        panned = window(browser)
        assert panned[0] > closer[0] and panned[1] - panned[0] == pytest.approx(closer[1] - closer[0])
        browser.run("amcastView.diagram.canvas.focus()")
        browser.key("ArrowLeft")
        assert window(browser)[0] < panned[0]
        for _ in range(25):
            browser.key("+")
        assert browser.run("[amcastView.diagram.summarised, amcastView.diagram.sampled]") == [False, 1]
        assert "zoom in" not in browser.text("#status")
        browser.key("0")
        assert window(browser) == pytest.approx((start, end))

        frame = while_panning(browser, 0.5)
        picture = browser.run("performance.getEntriesByName('first picture')[0].startTime / 1000")
        print(f"first picture after {picture:.2f} s; a frame while panning {frame:.1f} ms (median)")
        assert picture < 5 * FIRST_PICTURE_S  # this machine may be busy


def while_panning(browser: Browser, zoom: float) -> float:
    """The median time from frame to frame, in milliseconds, while a part of the run is moved about."""
    times = sorted(
        browser.run(
            f"""(async () => {{ const {{ diagram }} = amcastView, times = [];
            diagram.fit();
            diagram.zoom({zoom});
            for (let n = 0; n < 40; n++) {{
              const began = performance.now();
              diagram.pan(n < 20 ? 0.02 : -0.02);
              await new Promise((done) => diagram.canvas.addEventListener("drawn", done, {{ once: true }}));
              times.push(performance.now() - began);
            }}
            return times; }})()"""
        )
    )
    median = float(times[len(times) // 2])
    assert median < allow(FRAME_MS), f"from frame to frame {median} ms (median) at a zoom of {zoom}"
    return median


@pytest.mark.slow
def test_a_very_large_trace_moves_smoothly_at_every_zoom(browser: Browser) -> None:
    with trace_page(rows_of(long_run(VERY_LARGE))) as url:
        opened(browser, url)
        assert browser.run("amcastView.trace.size") >= VERY_LARGE
        frames = {zoom: while_panning(browser, zoom) for zoom in (0.9, 0.3, 0.1, 0.03, 0.01)}
        print(f"from frame to frame: {', '.join(f'{ms:.1f} ms at {zoom}' for zoom, ms in frames.items())}")


def test_the_overview_counts_what_the_events_say(browser: Browser) -> None:
    """Deliveries per group, multicasts of folded clients, reigns and outages: at every width of bins."""
    events = with_restart(simulated(600, "uniform:1ms,9ms", crash="g0/0@100ms", clients=12), "g0/0", 50_000_000)
    first = {(event.message, event.group): event for event in events[::-1] if event.kind == "deliver"}
    base = min(event.time or 0 for event in events)
    with trace_page(rows_of(events)) as url:
        opened(browser, url)
        diagram = "amcastView.diagram"
        browser.key("Escape")  # who came back and did nothing violates termination
        browser.key("0")
        assert browser.run(f"[{diagram}.summarised, {diagram}.bands[0].folded, {diagram}.rows]") == [True, True, 10]
        wanted = [sum(event.kind == "multicast" for event in events)]
        wanted += [sum(group == f"g{number}" for _, group in first) for number in range(3)]
        for width in (2**12, 2**18, 2**24, 2**40):
            assert counted(browser, "messages", width) == wanted, width
            assert sum(counted(browser, "activity", width)) == browser.run("amcastView.trace.size")

        led = [event for event in events if event.kind == "leader" and event.group == "g0"]
        crash = next(event for event in events if event.kind == "crash")
        times = [(event.time or 0) - base for event in (led[0], crash, led[1])]
        name = "amcastView.trace.processes[process], from, until]"
        reigns = browser.run(f"amcastView.trace.reigns[0].map(({{process, from, until}}) => [{name})")
        end = browser.run("amcastView.trace.end")
        assert reigns == [["g0/0", times[0], times[1]], ["g0/1", times[2], end]]
        outages = browser.run(f"amcastView.trace.outages().map(([process, from, until]) => [{name})")
        assert outages == [["g0/0", times[1], times[1] + 50_000_000]]

        said = f"{diagram}.summary.textAt({diagram}.x({{}}), {diagram}.{{}})"
        head = "bands[1].top + 5"
        assert "group g0" in browser.run(
            said.format(times[0] + 1e6, head)
        ) and "g0/0 leads since 0.000 ms" in browser.run(said.format(times[0] + 1e6, head))
        assert "nobody leads" in browser.run(said.format(times[1] + 1e6, head))
        down = "y[amcastView.trace.processes.indexOf('g0/0')]"
        assert "g0/0 is down since 100.000 ms" in browser.run(said.format(times[1] + 1e6, down))
        browser.key("g")
        assert browser.run(f"{diagram}.rows") == 4, "every group has one line"
        browser.key("g")
        assert browser.run(f"{diagram}.rows") == 21
        x, y = browser.run(f"(({{x, y}}) => [x, y])({diagram}.canvas.getBoundingClientRect())")
        browser.click(x + 20, y + browser.run(f"{diagram}.bands[2].top + 12"))
        assert browser.run(f"[{diagram}.rows, {diagram}.bands[2].folded]") == [19, True]


def counted(browser: Browser, counts: str, width: int) -> list[int]:
    """How much is counted per line, over all bins of this width."""
    return list(
        browser.run(
            f"""(() => {{ const {{cells, columns}} = amcastView.diagram.summary.{counts}.between(
              0, amcastView.trace.end, {width}), sums = [];
            cells.forEach((count, at) => {{ sums[at / columns | 0] = (sums[at / columns | 0] ?? 0) + count; }});
            return sums; }})()"""
        )
    )


def with_restart(events: list[Event], process: str, after: int) -> list[Event]:
    """The same run, with the process up again so long after its crash; it does nothing more."""
    crash = next(event for event in events if event.kind == "crash" and event.process == process)
    back = Event(crash.run, "restart", process, crash.group, crash.seq + 1, (crash.time or 0) + after)
    place = events.index(crash)
    return [*events[: place + 1], back, *events[place + 1 :]]


def test_a_tip_goes_with_its_event(browser: Browser) -> None:
    with trace_page(rows_of(simulated(60, "uniform:1ms,9ms"))) as url:
        opened(browser, url)
        browser.run("amcastView.diagram.look(0, 50e6)")
        browser.frame()
        event = "amcastView.trace.firstDeliveries()[0].event"
        x, y = place_of(browser, event)
        hidden = "document.querySelector('#tip').hidden"
        for movement in ("pan(0.3)", "zoom(0.2)", "scrollBy(30)", "fit()"):
            browser.run("amcastView.diagram.look(0, 50e6)")
            browser.until("performance.now() - amcastView.diagram.moved > 400")
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - 40, y=y)
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            browser.until(f"!{hidden} && document.querySelector('#tip').innerText.includes('delivers')")
            browser.run(f"amcastView.diagram.{movement}")
            assert browser.run(hidden) is True, movement


def is_alone(event: Event, events: list[Event]) -> bool:
    """Whether nothing else was at its process about then: a click on it cannot mean another one."""
    others = [other for other in events if other.process == event.process and other is not event]
    return all(abs((other.time or 0) - (event.time or 0)) > 500_000 for other in others)


def test_the_life_of_a_message(browser: Browser) -> None:
    events = simulated(60, "uniform:1ms,9ms", crash="g0/0@40ms")
    delivers = [event for event in events if event.kind == "deliver"]
    last_of = {(event.message, str(event.process).partition("/")[0]): event for event in delivers}
    message = next(
        event.message
        for event in events
        if event.kind == "multicast"
        and all(is_alone(e, delivers) for (m, _), e in last_of.items() if m == event.message)
    )
    sent = next(event for event in events if event.kind == "multicast" and event.message == message)
    delivered = [event for event in events if event.kind == "deliver" and event.message == message]
    with trace_page(rows_of(events)) as url:
        opened(browser, url)
        browser.key("/")
        browser.type(str(message))
        browser.key("Enter")
        about = sum(message in ((event.message,) if event.message else event.about or ()) for event in events)
        assert browser.text("#found") == f"1 of {about}"
        assert browser.run("amcastView.trace.messages[amcastView.diagram.selected]") == message
        browser.key("Escape")
        browser.key("Escape")
        assert browser.run("amcastView.diagram.selected") is None

        number = browser.run(f"amcastView.trace.number.get({json.dumps(message)})")
        browser.run(f"amcastView.diagram.reveal([...amcastView.trace.lifeOf({number})])")
        browser.frame()
        last = f"amcastView.trace.deliveriesOf({number})[0].last"
        browser.click(*place_of(browser, last))
        assert browser.run("amcastView.diagram.selected") == number, "a click on a delivery chooses its message"
        assert f"Message {message}" in browser.text("#details")
        assert f"All {about} events about it" in browser.text("#details")

        check_steps(browser, number, sent, delivered)
        browser.click_on("#life li:nth-child(4) button")
        assert browser.run("amcastView.diagram.cursor") == browser.run(f"amcastView.trace.lifeOf({number})[3]")
        browser.key("n")
        assert browser.run("amcastView.diagram.cursor") == browser.run(f"amcastView.trace.lifeOf({number})[4]")

        arrow = browser.run(
            f"[...amcastView.trace.lifeOf({number})].find((i) => amcastView.trace.kindName(i) === 'send' "
            "&& amcastView.trace.process[i] !== amcastView.trace.peer[i])"
        )
        start, end = (
            place_of(browser, str(arrow)),
            place_of(browser, f"amcastView.trace.arrow_to[amcastView.trace.arrowOfSend.get({arrow})]"),
        )
        browser.key("Escape")
        browser.click((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        assert browser.run("amcastView.diagram.cursor") is not None, "a click on an arrow chooses something"
        check_filters(browser, number, str(message))


def check_steps(browser: Browser, number: int, sent: Event, delivered: list[Event]) -> None:
    """The steps of the latency to each group follow each other and add up to it."""
    rows = browser.run(f"amcastView.trace.deliveriesOf({number})")
    assert len(rows) == len({event.group for event in delivered}) > 0
    for row in rows:
        group = browser.run(f"amcastView.trace.groups[{row['group']}]")
        first = min((event.time or 0) for event in delivered if event.group == group)
        steps = browser.run(
            f"""amcastView.trace.pathTo({number}, {row["first"]}).map(({{kind, from, to}}) =>
            [kind, amcastView.trace.time[from], amcastView.trace.time[to]])"""
        )
        assert steps[0][1] == sent.time and steps[-1][2] == first
        assert all(before[2] == after[1] for before, after in pairwise(steps)), steps
        assert sum(kind == "message" for kind, _, _ in steps) >= 3, "multicast, accept and its acknowledgement"


def test_a_wait_names_what_is_waited_for(browser: Browser) -> None:
    events = simulated(120, "uniform:1ms,9ms", clients=12)
    base = min(event.time or 0 for event in events)
    named = several = 0
    with trace_page(rows_of(events)) as url:
        opened(browser, url)
        for sent in (event for event in events if event.kind == "multicast"):
            browser.run(f"(() => {{ const q = document.querySelector('#query'); q.value = '{sent.message}'; "
                        "q.form.requestSubmit(); })()")  # fmt: skip
            last = int(browser.run("document.querySelector('#details select').value"))
            process, seq = browser.run(f"[amcastView.trace.processName({last}), amcastView.trace.seq[{last}]]")
            earlier = [event for event in events if event.process == process and event.seq < seq][::-1]
            together = takewhile(lambda event: event.kind != "receive", earlier)  # with the delivery
            before = [event.message for event in together if event.kind == "deliver"]
            steps = browser.text(".steps")
            if not before or "waits at" not in steps.splitlines()[-3]:
                continue
            named += 1
            several += len(before) > 1
            assert f"waits at {process} for {before[0]}, delivered before it" in steps
            moment = f"{((sent.time or 0) - base) / 1e6:,.3f} ms"
            for place in ("#details p.muted", "#status", "#life li"):
                assert moment in browser.text(place), "one origin of time: the start of the run"
            browser.click_on(".steps .other")
            assert f"Message {before[0]}" in browser.text("#details")
            if named > 5 and several > 1:
                return
    pytest.fail(f"{named} waits, {several} of them for the last of several: too few to tell")


def check_filters(browser: Browser, number: int, message: str) -> None:
    browser.key("f")
    lanes = browser.run("amcastView.diagram.lanes.length")
    browser.click_on("#groups label:nth-child(2) input")
    assert browser.run("amcastView.diagram.lanes.length") == lanes - 3
    browser.click_on("#types label:nth-child(1) input")
    assert browser.run("amcastView.diagram.hiddenTypes.size") == 1
    browser.run("document.querySelector('#message-filter').focus()")
    browser.type(message)
    assert browser.run("amcastView.diagram.allowed.reduce((sum, one) => sum + one)") >= 1
    assert browser.run(f"amcastView.diagram.allowed[{number}]") == 1
    browser.click_on("#filters-reset")
    assert browser.run("[amcastView.diagram.lanes.length, amcastView.diagram.hiddenTypes.size]") == [lanes, 0]


def test_a_counterexample_opens_with_its_rows(browser: Browser) -> None:
    with trace_page(rows_in("cycle3.jsonl")) as url:
        opened(browser, url)
        browser.until("amcastView.diagram.marks.length === 6")
        said = browser.text("#details")
        assert "violated order" in said and "no total order is possible" in said
        rows = ("g0/0", "a"), ("g0/0", "b"), ("g1/0", "b"), ("g1/0", "c"), ("g2/0", "c"), ("g2/0", "a")
        shown = [line for line in said.splitlines() if "delivers" in line]
        assert shown == [f"{process} delivers {message}" for process, message in rows]
        assert browser.run("amcastView.diagram.bands.every(({head}) => head < 20)"), "nothing lies over its few arrows"
        browser.click_on("#details ol li:nth-child(2) button")
        assert browser.run("amcastView.trace.describe(amcastView.diagram.cursor)") == "g0/0 delivers b"
        browser.key("Escape")
        assert browser.run("amcastView.diagram.marks.length") == 0
        browser.key("v")
        assert browser.run("amcastView.diagram.marks.length") == 6


def test_charts_say_what_the_events_say(browser: Browser) -> None:
    events = simulated(60, "uniform:1ms,9ms")
    with trace_page(rows_of(events)) as url:
        opened(browser, url)
        browser.key("c")
        browser.frame()
        assert inks(browser, "#charts-view canvas") > 3
        found = {row["message"]: row["latency"] for row in browser.run("amcastView.trace.latencies()")}
        names = browser.run("amcastView.trace.messages")
        assert {names[number]: latency for number, latency in found.items()} == latencies(events)
        assert "median" in browser.text("#charts-view")
        for size in ((1600, 900), (420, 800)):
            browser.size(*size)
            browser.frame()
            check_charts_fill_the_page(browser, *size)


def check_charts_fill_the_page(browser: Browser, width: int, height: int) -> None:
    canvases = "[...document.querySelectorAll('#charts-view canvas')]"
    places = browser.run(f"{canvases}.map((c) => c.getBoundingClientRect()).map((b) => [b.left, b.right, b.bottom])")
    assert len(places) == 4
    assert max(right for _, right, _ in places) > width * 0.95 and min(left for left, _, _ in places) < width * 0.05
    assert max(bottom for _, _, bottom in places) > height * 0.9, "no empty half of a page"
    assert browser.run("document.querySelector('#charts-view table').getBoundingClientRect().height") > 30
    for number in range(4):  # and each picture its canvas, to the right and below
        right, low = browser.run(
            f"""(() => {{ const c = {canvases}[{number}], {{width, height}} = c;
            const copy = new OffscreenCanvas(width, height).getContext("2d", {{ willReadFrequently: true }});
            copy.drawImage(c, 0, 0);
            const data = copy.getImageData(0, 0, width, height).data;
            const inked = (x, y) => data[(y * width + x) * 4 + 3] > 0, of = [0, 0];
            for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) if (inked(x, y)) {{
              of[0] = Math.max(of[0], x / width); of[1] = Math.max(of[1], y / height); }}
            return of; }})()"""
        )
        assert right > 0.9 and low > 0.9, number


def latencies(events: list[Event]) -> dict[str, int]:
    """From each multicast to the first delivery in the last of its groups."""
    first: dict[tuple[str, str], int] = {}
    for event in events:
        if event.kind == "deliver" and event.message is not None and event.group is not None:
            first.setdefault((event.message, event.group), event.time or 0)
    return {
        event.message or "": max(first[event.message or "", group] for group in event.dest or ()) - (event.time or 0)
        for event in events
        if event.kind == "multicast"
    }


def test_light_dark_narrow_and_several_runs(browser: Browser) -> None:
    events = simulated(5)
    other = [Event("second", event.kind, event.process, event.group, event.seq, event.time, message=event.message,
                   sender=event.sender, dest=event.dest) for event in events if event.peer is None]  # fmt: skip
    with trace_page(rows_of([*events, *other]), "<img src=x onerror=alert(1)>") as url:
        opened(browser, url)
        assert browser.text("#title") == "<img src=x onerror=alert(1)>", "names are never markup"
        page = "getComputedStyle(document.body).backgroundColor"
        assert browser.run(page) == "rgb(255, 255, 255)"
        browser.size(360, 640, dark=True)
        browser.frame()
        assert browser.run(page) == "rgb(20, 23, 26)"
        assert browser.run("document.documentElement.scrollWidth") <= 360, "nothing sticks out of a narrow window"
        assert browser.run("document.querySelector('#stage').clientHeight") > 150
        browser.key("t")
        assert browser.run(page) == "rgb(255, 255, 255)", "what a person chooses counts"
        browser.run("localStorage.clear()")
        browser.run("(() => { const s = document.querySelector('#run'); s.value = 'second'; "
                    "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
        browser.until("amcastView.trace.run === 'second'")
        assert browser.run("amcastView.trace.abstract") is True


def test_on_paper_it_is_light_and_as_wide_as_a_page(browser: Browser) -> None:
    corners = """['#diagram', '#overview'].map((name) => {
        const copy = new OffscreenCanvas(9, 9).getContext('2d');
        copy.drawImage(document.querySelector(name), 0, 0);
        return [...copy.getImageData(3, 3, 1, 1).data].slice(0, 3); })"""
    shown = "getComputedStyle(document.querySelector('{}')).display"
    with trace_page(rows_of(simulated(60, "uniform:1ms,9ms", clients=12))) as url:
        browser.size(1900, 900, dark=True)
        opened(browser, url)
        dark = browser.run(corners)
        assert max(map(max, dark)) < 80
        on_paper = browser.run(f"window.dispatchEvent(new Event('beforeprint')), {corners}")  # no frame comes between
        assert min(map(min, on_paper)) > 200, "whoever looks at a dark page prints a light one"
        assert browser.run(shown.format(".tabs")) == browser.run(shown.format("#search")) == "none"
        for canvas in ("#diagram", "#overview"):
            width, height, sharp = browser.run(
                f"(({{clientWidth, clientHeight, width}}) => [clientWidth, clientHeight, width / clientWidth])"
                f"(document.querySelector('{canvas}'))"
            )
            assert 800 < width < 1000 and height > 40 and sharp == 1, "drawn anew, not stretched"
        browser.run("window.dispatchEvent(new Event('afterprint'))")
        browser.until("amcastView.diagram.width > 1000")
        assert browser.run(corners) == dark and browser.run(shown.format(".tabs")) == "flex"
        pdf = base64.b64decode(browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
        assert pdf.count(b"/Type /Page\n") == 2, "the diagram, and what is known of the run"


def test_a_live_cluster_and_the_loss_of_its_leader(browser: Browser, tmp_path: Path) -> None:
    config = create_cluster(tmp_path, protocol("white_box"), 1, 3, "kv", secure=False, durable=True)
    processes = Processes(config)
    watch = Watch(config)
    made = Client(config, protocol("white_box"), "dev", admin=Address("127.0.0.1", 0))

    async def send(query: Any) -> tuple[str, bytes]:
        await watch.look()  # instead of once a second
        return await watch.send(query)

    try:
        with processes.alone():
            for member in config.members:
                processes.start(member)
        assert processes.wait_until_ready(config.members, 60) == {f"g0/{n}": None for n in range(3)}
        with (
            served(PageServer("live.html", {"/live": send, "/states": watch.states})) as url,
            SyncClient(lambda: made) as client,
        ):
            browser.open(url)
            browser.until("document.querySelectorAll('#replicas tbody tr').length === 3")
            assert "3 of 3 replicas ready" in browser.text("#subtitle")
            leader = browser.until("document.querySelector('#groups strong')?.innerText.match(/(.*) leads/)?.[1]")
            assert made.numbers.address is not None
            watch.clients.append(SeenClient(made.numbers.address))
            browser.until("document.querySelector('#clients').innerText.includes('answers')")
            for _ in range(5):
                client.multicast(["g0"], b"x")
            browser.until("document.querySelector('#clients tbody td:last-child').innerText.endsWith('s')")
            # five, and what raised the format when all knew it
            browser.until("document.querySelector('#replicas').innerText.split('\\t6\\t').length > 3")
            browser.until("document.querySelector('#groups').innerText.includes('hashes of 3 agree')")
            assert browser.text("#reigns").split() == ["group", "g0", leader]
            browser.click_on("#compare")
            browser.until("document.querySelector('#states').innerText.includes('3 of 3 have the same state at 6')")
            processes.stop([config.member(leader)])
            browser.until(f"document.querySelector('#news').innerText.includes('instead of {leader}')")
            assert f"{leader} does not answer" in browser.text("#news")
            assert "2 of 3 ready" in browser.text("#groups")
            browser.until("new Set([...document.querySelectorAll('.reigns span')].map((s) => s.innerText)).size > 1")
            assert inks(browser, "#charts canvas") > 1
    finally:
        processes.stop(config.members)


def test_screenshots_for_a_person(browser: Browser, request: pytest.FixtureRequest) -> None:
    """`pytest tests/web --screenshots DIR` leaves pictures to look at."""
    folder = request.config.getoption("--screenshots")
    if folder is None:
        pytest.skip("only with --screenshots DIR")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with trace_page(rows_of(simulated(60, "uniform:1ms,9ms", crash="g0/0@40ms"))) as url:
        opened(browser, url)
        browser.run("localStorage.clear()")
        for name, size in {"wide": (1400, 860, False), "dark": (1400, 860, True), "narrow": (400, 800, False)}.items():
            browser.size(*size)
            browser.key("]")
            browser.key("z")
            browser.until("performance.now() - amcastView.diagram.moved > 400")
            browser.screenshot(Path(folder) / f"{name}.png")
        browser.key("c")
        browser.screenshot(Path(folder) / "charts.png")
    with trace_page(rows_of(long_run(VERY_LARGE))) as url:
        for name, size in {
            "large": (1600, 900, False),
            "large-dark": (1600, 900, True),
            "large-narrow": (420, 800, False),
        }.items():
            browser.size(*size)
            opened(browser, url)
            browser.until("performance.now() - amcastView.diagram.moved > 400")
            browser.screenshot(Path(folder) / f"{name}.png")
        printed = browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        (Path(folder) / "large.pdf").write_bytes(base64.b64decode(printed["data"]))
