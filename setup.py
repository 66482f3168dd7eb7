"""Compiles the modules of compiled.txt with mypyc where that can be done; everything else is in pyproject.toml.

Without mypy or a C compiler the install is plain Python, and one line says so. AMCAST_COMPILE decides the rest:
    unset   whatever goes wrong while compiling, the install goes on as plain Python
    1       what mypyc or the C compiler rejects is an error (the Makefile)
    0       do not compile
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup

WISH = os.environ.get("AMCAST_COMPILE", "")


def sources() -> list[str]:
    lines = Path(__file__).with_name("compiled.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def probe_compiler() -> None:
    """Compile one line against Python's headers: a compiler alone is not enough."""
    if sys.platform == "win32":
        return
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    include = sysconfig.get_paths()["include"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <Python.h>\n")
        try:
            arguments = [*command, f"-I{include}", "-c", str(source), "-o", str(source.with_suffix(".o"))]
            subprocess.run(arguments, check=True, capture_output=True)
        except OSError as problem:
            raise FileNotFoundError(f"no C compiler ({command[0]})") from problem
        except subprocess.CalledProcessError as problem:
            raise FileNotFoundError(f"{command[0]} fails to compile against the headers in {include}") from problem


def extensions() -> list[Extension]:
    from mypyc.build import mypycify

    probe_compiler()
    found: list[Extension] = mypycify(sources(), opt_level="1", debug_level="0", group_name="amcast")
    for extension in found:
        extension.optional = WISH != "1"
    return found


def extensions_if_possible() -> list[Extension]:
    try:
        return extensions()
    except (ImportError, FileNotFoundError) as missing:
        reason = str(missing)
    except SystemExit:  # how mypycify says that it found errors, which it has printed
        if WISH == "1":
            raise
        reason = "mypyc found errors"
    print(f"warning: amcast is not compiled, it runs as plain Python: {reason}", file=sys.stderr)
    return []


# Only a build needs the extensions: metadata and source archives should not wait for a compiler.
BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "develop", "install"}
setup(ext_modules=extensions_if_possible() if WISH != "0" and BUILDS & set(sys.argv) else [])
