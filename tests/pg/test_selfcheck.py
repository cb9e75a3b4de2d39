"""A psycopg that the connection was not made for is refused, in one sentence."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from psycopg.generators import copy_to

from awa_trio._core.errors import AwaError
from awa_trio._pg import selfcheck
from awa_trio._pg.connection_endings import MANNERS
from awa_trio._pg.selfcheck import PsycopgMismatch

CURE = r"install one that fits with: pip install 'psycopg\[binary\]>=3\.3\.9,<3\.4'$"


def test_the_installed_one_passes() -> None:
    selfcheck.check()


@pytest.mark.parametrize("version", ["3.3.9", "3.3.10", "3.3.99", "3.3.9.post1"])
def test_the_window_is_open_to_patches(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(psycopg, "__version__", version)
    selfcheck.check()


@pytest.mark.parametrize("version", ["3.3.8", "3.2.13", "3.4.0", "3.4.0.dev1", "4.0"])
def test_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(psycopg, "__version__", version)
    with pytest.raises(PsycopgMismatch, match=f"found psycopg {version}, .*tested.*; {CURE}"):
        selfcheck.check()


@pytest.mark.parametrize("path", selfcheck.SEAM)
def test_every_name_is_missed(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    module, _, names = path.partition(":")
    owner: object = sys.modules[module]
    *parents, name = names.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    monkeypatch.setattr(owner, name, None)

    with pytest.raises(PsycopgMismatch, match=f"has no {module}.{names}; {CURE}"):
        selfcheck.check()


def test_a_changed_signature_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(self: object, gen: object, interval: float = 0.1) -> None: ...

    monkeypatch.setattr(psycopg.AsyncConnection, "wait", wait)
    with pytest.raises(
        PsycopgMismatch,
        match=r"AsyncConnection\.wait takes \(self, gen, interval\) and not"
        r" \(self, gen, interval, timeout\); ",
    ):
        selfcheck.check()


def test_a_generator_that_moved_to_c_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    class Compiled:
        def __call__(self, pgconn: object, buffer: object, flush: bool = True) -> None: ...

    monkeypatch.setattr(psycopg.generators, copy_to.__name__, Compiled())
    with pytest.raises(
        PsycopgMismatch, match=r"generators\.copy_to is not written in Python; "
    ):
        selfcheck.check()


def test_it_is_an_import_error_of_ours() -> None:
    assert issubclass(PsycopgMismatch, ImportError)
    assert issubclass(PsycopgMismatch, AwaError)


def test_it_strikes_before_anything_else_goes_wrong() -> None:
    program = (
        "import psycopg._copy_base\n"
        "del psycopg._copy_base.BaseCopy._read_gen\n"
        "import awa_trio._pg.connection\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "awa_trio._pg.selfcheck.PsycopgMismatch: awa_trio found psycopg 3.3."
    )
    assert "which has no psycopg._copy_base.BaseCopy._read_gen; install one" in last


def test_every_generator_that_is_recognised_is_looked_at() -> None:
    looked_at = {
        id(getattr(selfcheck._find(path), "__code__", None))
        for path, parameters in selfcheck.SEAM.items()
        if parameters is not None
    }
    assert set(MANNERS) <= looked_at
