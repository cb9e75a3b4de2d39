"""Build the documentation as a site; ``--serve`` shows it on loopback."""

from __future__ import annotations

import argparse
import functools
import http.server
import subprocess
import sys
from pathlib import Path

from .reference import Reference
from .stage import stage

ROOT = Path(__file__).parents[2]
TO = ROOT / "build" / "docs"


def build(root: Path, to: Path, reference: Reference) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository in ``to/site``; a link that leads nowhere fails it.

    Returns:
      How the builder ended, and what it said.
    """
    stage(root, to, reference)
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=to,
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.docsite", description=__doc__)
    options.add_argument("--serve", action="store_true", help="and show it, until Ctrl-C")
    options.add_argument("--port", type=int, default=8000)
    given = options.parse_args()
    built = build(ROOT, TO, Reference())
    if built.returncode != 0:
        raise SystemExit(built.stdout + built.stderr)
    site = TO / "site"
    print(f"the site is in {site.relative_to(ROOT)}")
    if given.serve:
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
        with http.server.ThreadingHTTPServer(("127.0.0.1", given.port), handler) as server:
            print(f"http://127.0.0.1:{server.server_port}/; Ctrl-C stops it")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                pass


if __name__ == "__main__":
    main()
