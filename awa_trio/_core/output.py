"""What a completing attempt leaves on its job for people to read.

An output decides nothing: no code of this package reads it but to show it, so it
can be dropped with its job. A value that another job needs travels in that job's arguments.

Source: ADR-046, "Retain the result on the job".
"""

from __future__ import annotations

from .errors import InvalidValue
from .jsontext import utf8_size
from .plain import encode_plain

#: The same bound as the progress of an attempt: what is larger belongs in a place for data.
MAX_OUTPUT_BYTES = 64 * 1024


def encode_output(value: object) -> bytes:
    """Encode an output as it is stored.

    Raises:
      InvalidValue: it is not plain JSON, or larger than 65,536 bytes.
    """
    text = encode_plain(value, object, "output")
    if len(text) > MAX_OUTPUT_BYTES and (size := utf8_size(text)) > MAX_OUTPUT_BYTES:
        raise InvalidValue(
            f"output: {size:,} bytes of JSON; keep at most {MAX_OUTPUT_BYTES:,},"
            " and a reference to the rest"
        )
    return text
