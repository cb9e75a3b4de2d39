"""Tables in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table as RichTable

from .tables import Table


def print_table(console: Console, table: Table) -> None:
    """Print one, with what is in numbers to the right."""
    rich = RichTable(title=table.title, title_justify="left", box=None, header_style="bold")
    for number, title in enumerate(table.header):
        numbers = all(row[number][:1] in "-0123456789" for row in table.rows)
        rich.add_column(title, justify="right" if numbers else "left", no_wrap=numbers)
    for row in table.rows:
        rich.add_row(*row)
    console.print()
    console.print(rich)
