"""Guards the one tree of errors: it is drawn as it is, and a command's exit code follows from it."""

import re

import pytest

from amcast import errors
from amcast.cli import run
from amcast.errors import AmcastError, PeerError, UsageError

DRAWN = re.compile(r"^(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+) {2,}\S")
ALL = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, BaseException)]
OURS = [error for error in ALL if issubclass(error, AmcastError)]


def drawn() -> dict[str, str]:
    """Return the parent of each error, as the docstring draws it."""
    above: dict[int, str] = {}
    parents: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := DRAWN.match(line):
            depth = len(found["branch"]) // 4
            above[depth] = found["name"]
            parents[found["name"]] = above[depth - 1] if depth else "Exception"
    return parents


def test_the_tree_is_drawn_as_it_is() -> None:
    real = {error.__name__: error.__bases__[0].__name__ for error in ALL}
    assert drawn() == real | {"KeyboardInterrupt": "Exception"}  # a root, as the other one
    assert all(error.__doc__ and len(error.__bases__) == 1 for error in ALL)


def test_what_a_peer_did_wrong_is_not_a_usage_error() -> None:
    assert not [error for error in ALL if issubclass(error, UsageError) and issubclass(error, PeerError)]
    assert {error.__name__ for error in OURS if error.exit_code == 2} == {
        "UsageError", "TopologyError", "TraceError", "LineFault", "StorageCorrupt", "ReplicasDiffer",
    }  # fmt: skip


@pytest.mark.parametrize(("error", "code"), [(errors.WireError, 1), (errors.TraceError, 2), (errors.StorageCorrupt, 2)])
def test_exit_codes_follow(
    error: type[AmcastError], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise error("what was seen; what to do")

    monkeypatch.setattr("amcast.cli.app", broken)
    assert run(["sim"]) == code
    assert capsys.readouterr().err == "amcast: what was seen; what to do\n"
