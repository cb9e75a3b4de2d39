"""``awa-trio completion``: commands and options, completed by the shell."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from ._options import Json
from ._output import print_record, say


class Shell(StrEnum):
    """Shells that complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion_of(app: App) -> App:
    """Return the command that completes those of an app."""
    completion = App(name="completion", help="Let a shell complete commands and options.")

    @completion.default
    def script(
        shell: Shell,
        /,
        *,
        install: Annotated[bool, Parameter(negative="")] = False,
        json: Json = False,
    ) -> None:
        """Print the script with which a shell completes commands and options.

        As in: eval "$(awa-trio completion bash)"

        Parameters
        ----------
        shell
            bash, zsh or fish.
        install
            Put it where the shell finds it, and say where that is.
        """
        if install:
            where: Path = app.install_completion(shell=shell.value)
            if json:
                print_record({"shell": shell, "installed": str(where)})
            else:
                say(f"{where} has it; a new {shell} completes awa-trio")
            return
        text = app.generate_completion(prog_name="awa-trio", shell=shell.value)
        if json:
            print_record({"shell": shell, "script": text})
        else:
            print(text)

    return completion
