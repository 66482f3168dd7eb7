"""The same seed gives the same trace, whatever the hash seed, compiled or interpreted."""

import hashlib
import os
import subprocess
import sys

import pytest

import amcast

PROGRAM = """
import hashlib, sys
from amcast.core.trace import ListRecorder
from amcast.swarm.seeds import make_trial
from amcast.protocols import protocol

digest = hashlib.sha256()
SEEDS = {"skeen": 12, "white_box": 12, "fastcast": 8, "paxos_amcast": 8, "optimistic": 6,
         "causal": 3, "allgather": 3, "allconcur": 3, "allconcur_plus_uniform": 3, "allconcur_plus_ea": 3, "lcr": 3}
for name, seeds in [(name, range(count)) for name, count in SEEDS.items()]:
    for seed in seeds:
        recorder = ListRecorder(full=True)
        make_trial(protocol(name), seed, recorder).world.run()
        for event in recorder.events:
            digest.update(repr(event).encode())
print(digest.hexdigest())
"""


def trace_hash(**environment: str) -> str:
    env = {**os.environ, **environment}
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True)
    return result.stdout.strip()


def test_hash_seed_does_not_matter() -> None:
    first = trace_hash(PYTHONHASHSEED="1")
    assert first == trace_hash(PYTHONHASHSEED="2")
    assert first != hashlib.sha256().hexdigest()


def test_compiled_and_interpreted_agree() -> None:
    if not amcast.compiled():
        pytest.skip("core, protocols and sim are not compiled here")
    assert trace_hash() == trace_hash(AMCAST_PURE="1")
