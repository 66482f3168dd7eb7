"""Options and fixtures of the whole suite."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the golden transcripts of the scenarios anew")
    parser.addoption("--screenshots", metavar="DIR", help="leave pictures of the page there")


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
