"""Whatever is wrong with what the user typed: one clear line on stderr, nothing on stdout, exit code 2."""

from pathlib import Path

import pytest
from calling import Amcast

MISTAKES = {
    # what is typed: what the line must say
    "sim": "Missing argument 'PROTOCOL'",
    "sim whitebox": "did you mean white_box?",
    "sim White-Box": "did you mean white_box?",
    "sim white_box --setup nowhere": "unknown set-up 'nowhere': expected one of white-box-lan",
    "sim multi_paxos --groups 2": "use --groups 1",
    "sim xyz": "expected one of skeen, white_box",
    "sim white_box --replicas 2": "odd",
    "sim white_box --replicas 0": "--replicas 0: expected a whole number of at least 1",
    "sim white_box --replicas -1": "--replicas -1: expected",
    "sim skeen --replicas 3": "use --replicas 1",
    "sim white_box --groups 0": "group",
    "sim white_box --groups -2": "--groups -2: expected a whole number of at least 1",
    "sim white_box --groups 4000000000": "--groups: 4000000000: expected a whole number from 1 to 2147483647",
    "sim optimistic --groups 3 --senders-to 3": "3 groups that send to each: expected 0 to 2",
    "sim white_box --clients 0": "clients",
    "sim white_box --dest-groups 4": "from 1 to 3",
    "sim white_box --dest-groups 0": "--dest-groups 0: expected a whole number of at least 1",
    "sim white_box --crash g3/0@5ms": "no process 'g3/0'",
    "sim white_box --crash g0/3@5ms": "no process 'g0/3'",
    "sim white_box --crash c10@5ms": "no process 'c10'",
    "sim white_box --crash g0/0": "expected PROCESS@TIME",
    "sim white_box --crash g0/0@soon": "time 'soon'",
    "sim white_box --crash g0/0@-5ms": "time '-5ms'",
    "sim white_box --crash g0/0@1e400s": "",
    "sim white_box --crash g0/0@10000000000s": "at most thirty days",
    "sim white_box --network constant:9223372036s": "at most thirty days",
    "sim white_box --duration 10000000000s": "at most thirty days",
    "sim white_box --network foo": "network 'foo'",
    "sim white_box --network constant": "network 'constant'",
    "sim white_box --network constant:1": "time '1'",
    "sim white_box --network constant:0ms": "positive",
    "sim white_box --network uniform:9ms,1ms": "lower bound first",
    "sim white_box --network uniform:1ms": "network 'uniform:1ms'",
    "sim white_box --messages 0": "--messages",
    "sim white_box --messages ten": "--messages ten: expected a whole number of at least 1",
    "sim white_box --messages 5 --duration 1s": "exclude each other",
    "sim white_box --duration 0s": "--duration: '0s': expected a time from 1 ns to thirty days",
    "sim white_box --duration 10": "time '10'",
    "sim white_box --duration 1e400s": "",
    "sim white_box --seed -1": "--seed",
    "sim white_box --seed one": "--seed",
    "sim white_box --rate 0": "--rate 0: expected a number from 0.001 to 1000000000",
    "sim white_box --rate nan": "--rate nan: expected a number from 0.001 to 1000000000",
    "sim white_box --rate inf": "--rate inf: expected a number from 0.001 to 1000000000",
    "sim white_box --payload -1": "--payload",
    "sim white_box --skew -1ms": "time '-1ms'",
    "sim white_box --trace everything": "--trace everything: expected one of deliveries, full",
    "sim white_box --nonsense": "--nonsense",
    "sim white_box --out FILE": "is a file",
    "sim white_box --out STRANGERS": "STRANGERS: is not empty",
    "sim white_box --out STRANGERS --force": "STRANGERS: is not empty",
    "verify": "Missing argument 'TRACE'",
    "verify NOTHING": "does not exist",
    "verify FILE": "expected a Parquet folder or a .parquet, .jsonl or .csv file",
    "verify EMPTY": "there is no .parquet file in it",
    "verify empty.jsonl": "is empty",
    "verify empty.csv": "is empty",
    "verify junk.parquet": "cannot be read",
    "verify junk.jsonl": "line 1: is not JSON",
    "verify junk.csv": "junk.csv",
    "verify column.jsonl": "'process'",
    "verify type.jsonl": "'seq'",
    "verify good.jsonl --properties order,beauty": "property 'beauty' is unknown",
    "verify good.jsonl --properties ,": "property '' is unknown",
    "verify good.jsonl more.jsonl": "more.jsonl",
    "claims nonsense": "unknown protocol 'nonsense'",
    "swarm nonsense": "unknown protocol 'nonsense'",
    "swarm white_box --seeds 0": "--seeds",
    "swarm white_box --first-seed -1": "--first-seed",
    "swarm white_box --jobs 0": "--jobs",
    "explore nonsense": "unknown protocol 'nonsense'",
    "explore skeen --states 0": "--states",
    "explore skeen --scope nonsense": "unknown scope 'nonsense' of skeen",
    "explore skeen --out STRANGERS": "STRANGERS: is not an empty folder",
    "replay absent.json": "absent.json: No such file",
    "swarm white_box --out STRANGERS": "STRANGERS: is not an empty folder",
    "demo --out STRANGERS": "STRANGERS: holds other things than an earlier demo",
    "protocols --nonsense": "--nonsense",
    "simulate": "No such command 'simulate'",
    "--nonsense": "--nonsense",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    files_to_choose_from(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = amcast(*typed.split())
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("amcast: ") and done.err.endswith("\n") and done.err.count("\n") == 1
    assert MISTAKES[typed] in done.err
    assert "Traceback" not in done.err


def files_to_choose_from(folder: Path) -> None:
    row = '{"run": "r", "kind": "end", "process": "p", "group": null, "seq": 1}'
    (folder / "FILE").touch()
    (folder / "EMPTY").mkdir()
    (folder / "STRANGERS").mkdir()
    (folder / "STRANGERS" / "thesis.tex").touch()
    (folder / "empty.jsonl").touch()
    (folder / "empty.csv").touch()
    for suffix in ("parquet", "jsonl", "csv"):
        (folder / f"junk.{suffix}").write_bytes(b"\x00\xff\xfe junk")
    (folder / "good.jsonl").write_text(row)
    (folder / "column.jsonl").write_text(row.replace('"process": "p", ', ""))
    (folder / "type.jsonl").write_text(row.replace("1}", '"one"}'))


def test_a_truncated_parquet_file_is_one_line(amcast: Amcast, tmp_path: Path) -> None:
    amcast("sim", "skeen", "--messages", 20, "--out", tmp_path / "trace")
    file = next(tmp_path.glob("trace/kind=deliver/*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    done = amcast("verify", tmp_path / "trace")
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1 and "cannot be read" in done.err


def test_an_empty_name_is_no_cluster(amcast: Amcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("init", "up", "down", "status"):
        typed = amcast("cluster", command, "")
        assert (typed.code, typed.out) == (2, "") and typed.err.startswith("amcast: '' is no folder: expected")
    assert not list(tmp_path.iterdir())
