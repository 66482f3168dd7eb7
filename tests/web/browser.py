"""A real Chromium without a window, driven over a pipe by the DevTools protocol: no library is needed for that."""

import base64
import fcntl
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.pace import allow
from tests.tools import tool

SECONDS = 60.0  # for anything that is waited for
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check",
    "--remote-debugging-pipe", "--force-color-profile=srgb", "--hide-scrollbars",
)  # fmt: skip


class Browser:
    """One tab. `events` are the notifications that came meanwhile."""

    def __init__(self, profile: Path) -> None:
        theirs_in, ours_out = (high(end) for end in os.pipe())
        ours_in, theirs_out = (high(end) for end in os.pipe())
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, tool("chromium"), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._buffer = bytearray()
        self._next = 0
        self.events: list[dict[str, Any]] = []
        pages = self.call("Target.getTargets", session=None)["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        self.session: str | None = self.call(
            "Target.attachToTarget", session=None, targetId=page, flatten=True
        )["sessionId"]  # fmt: skip
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        try:
            self.call("Browser.close", session=None)
            self.process.wait(10)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)

    def call(self, method: str, session: str | None = "", **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and wait for what it says."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        number = self._next
        end = time.monotonic() + allow(SECONDS)
        while True:
            answer = self._read(end)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def _read(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self._in, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        message, _, rest = bytes(self._buffer).partition(b"\0")
        self._buffer = bytearray(rest)
        return dict(json.loads(message))

    # ---------------------------------------------------------------- what tests say

    def size(self, width: int, height: int, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there, and wait until all of it has loaded."""
        before = len(self.events)
        self.call("Page.navigate", url=url)
        end = time.monotonic() + allow(SECONDS)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[before:]):
            self.events.append(self._read(end))

    def run(self, script: str) -> Any:
        """The value of an expression in the page; what it throws fails the test."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{script}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def until(self, condition: str) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + allow(SECONDS)
        while True:
            value = self.run(condition)
            if value:
                return value
            assert time.monotonic() < end, f"never true: {condition}"
            self.frame()

    def frame(self) -> None:
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.frame()

    def click_on(self, selector: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
        x, y, width, height = self.run(
            f"(({{x, y, width, height}}) => [x, y, width, height])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        self.click(x + width / 2, y + height / 2)

    def drag(self, x: float, y: float, to_x: float, to_y: float, steps: int = 10) -> None:
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, button="left", clickCount=1)
        for step in range(1, steps + 1):
            at_x, at_y = x + (to_x - x) * step / steps, y + (to_y - y) * step / steps
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=at_x, y=at_y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=to_x, y=to_y, button="left", clickCount=1)
        self.frame()

    def wheel(self, x: float, y: float, delta: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        self.frame()

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **code)
        self.frame()

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def screenshot(self, path: Path) -> None:
        self.frame()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the console, the policy and the network had to say."""
        found = []
        for event in self.events:
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(event["params"]["exceptionDetails"]))
                case "Log.entryAdded" if event["params"]["entry"]["level"] in ("error", "warning"):
                    found.append(str(event["params"]["entry"]))
                case "Runtime.consoleAPICalled" if event["params"]["type"] in ("error", "warning"):
                    found.append(str(event["params"]["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address that a page asked for."""
        asked = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [str(each["request"]["url"]) for each in asked]


def high(descriptor: int) -> int:
    """The same pipe under a number that the shell does not use."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return moved
