"""The page of a report in a real browser: nothing that it shows is cut off."""

from pathlib import Path

import pytest
from browser import Browser

from amcast.report.page import Section, document, table

pytestmark = pytest.mark.tool("chromium")


def test_the_table_of_runs_fits_a_window_of_1300_pixels(tmp_path: Path) -> None:
    """With three settings that vary, and names of runs as sweeps give them."""
    names = ("run", "protocol", "network", "clients", "seed", "outcome", "messages", "delivered", "deliveries",
             "crashes", "duration, ms", "messages/s", "p50, ms", "p99, ms")  # fmt: skip
    row = ("white_box-bc84234959053e4b", "white_box", "uniform:1ms,9ms", 1000, "240434057383662", "quiescent", 100_000,
           100_000, 1_300_000, 1, 265_123.45, 123_919.9, 23.01, 125.42)  # fmt: skip
    rows = [dict(zip(names, row, strict=True))] * 3
    page = tmp_path / "report.html"
    body = table("Runs", dict(zip(names, names, strict=True)), rows)
    page.write_text(document("Report", "of a sweep", "", [Section("Runs", body, "runs")], ""), encoding="utf-8")
    browser = Browser(tmp_path / "profile")
    try:
        for width, fits in ((1600, True), (1300, True), (420, False)):
            browser.size(width, 900)
            browser.open(page.as_uri())
            inside, outside = browser.run(
                "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('.scroll'))"
            )
            assert (inside <= outside) == fits, (width, inside, outside)
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.complaints() == []
    finally:
        browser.close()
