"""A wrong number, in every option that takes one: one line with limits that make sense, exit code 2."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from calling import Amcast

from amcast.cli import app

NEEDED = {  # what a command needs besides, so that nothing else is wrong
    "protocol": "white_box", "cluster": "store", "name": "g0/0", "trace": "good.jsonl", "source": "good.jsonl",
    "spec": "spec.toml", "file": "replay.json", "transactions": "x", "folder": "new", "out": "out", "form": "svg",
    "workload": "echo", "data": "store",
}  # fmt: skip
LIMITS = re.compile(r"from (\S+) to (\S+)")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, (*path, name))
    else:
        yield path, command


def with_numbers() -> Iterator[tuple[str, str]]:
    """Each option that takes a number, with all that its command needs before it."""
    for path, command in commands(typer.main.get_command(app)):
        needed = [
            word
            for each in command.params
            if each.required
            for word in (
                [NEEDED[each.name]] if each.param_type_name == "argument" else [each.opts[0], NEEDED[each.name]]
            )
        ]
        for each in command.params:
            if each.param_type_name == "option" and each.type_descriptor.annotation in (int, float):
                yield " ".join([*path, *needed]), each.opts[0]


OPTIONS = list(with_numbers())


def test_there_are_many() -> None:
    assert len(OPTIONS) >= 35 and ("sim white_box", "--groups") in OPTIONS


@pytest.mark.parametrize(("typed", "option"), OPTIONS)
def test_a_wrong_number_is_one_line(
    amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in ("-1", "many", ""):
        done = amcast(*typed.split(), option, wrong)
        assert done.code == 2 and done.out == "" and done.err.count("\n") == 1, (done, wrong)
        if "expected a" in done.err and option in done.err:
            assert f"{option} {wrong}: expected a " in done.err
        else:
            assert typed.startswith("replay"), "where what is allowed depends on the file"
        for low, high in LIMITS.findall(done.err):
            assert float(low) <= float(high), done.err
