"""Settings are checked when they are made."""

from __future__ import annotations

import math
from typing import Any

import pytest

from awa_trio._core.errors import ConfigurationError
from awa_trio._core.settings import QueueSettings, Retention, Timings


@pytest.mark.parametrize("settings", [QueueSettings, Timings, Retention])
def test_the_defaults_are_allowed(settings: type) -> None:
    settings()


@pytest.mark.parametrize(
    ("settings", "values", "message"),
    [
        (QueueSettings, {"max_workers": 0}, "whole number from 1"),
        (QueueSettings, {"max_workers": 1.5}, "whole number"),
        (QueueSettings, {"max_workers": True}, "whole number"),
        (QueueSettings, {"deadline": -1}, "give 0 to 31,622,400 seconds"),
        (QueueSettings, {"deadline": 1e15}, "give 0 to 31,622,400 seconds"),
        (QueueSettings, {"deadline": math.nan}, "give 0 to"),
        (QueueSettings, {"deadline": math.inf}, "give 0 to"),
        (QueueSettings, {"deadline": "30"}, "as a number"),
        (Timings, {"lease": 14.9}, "at least three heartbeats"),
        (Timings, {"finalize_deadline": 30}, "shorter than the lease"),
        (Timings, {"give_up_blocked_after": 1.0}, "longer than blocked_after"),
        (Timings, {"poll_interval": 0}, "give 0.001 to"),
        (Retention, {"completed": -1}, "give 0 to"),
        pytest.param(QueueSettings, {"deadline": 10**5000}, "give 0 to", id="huge deadline"),
        pytest.param(
            QueueSettings, {"max_workers": 10**5000}, "whole number", id="huge max_workers"
        ),
        pytest.param(
            QueueSettings, {"dead_letters": 10**5000}, "True or False", id="huge dead_letters"
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    settings: Any, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        settings(**values)


def test_a_job_may_be_kept_for_ever() -> None:
    assert Retention(completed=math.inf).completed == math.inf
