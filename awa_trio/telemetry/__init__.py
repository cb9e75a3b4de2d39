"""OpenTelemetry for clients and workers: traces that follow a job, and metrics.

    import awa_trio as awa
    from awa_trio.telemetry import Telemetry

    async with awa.connect(dsn, app=app, observers=[Telemetry()]) as client:
        ...

Needs ``awa-trio[otel]``, which is the API alone; what is exported, and where to, is the
application's to configure.
"""

try:
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401
except ImportError as error:
    raise ImportError(
        "awa_trio.telemetry needs OpenTelemetry; install it with: pip install 'awa-trio[otel]'"
    ) from error

from .._publish import publish as _publish
from ._telemetry import Telemetry as Telemetry

_publish(__name__, globals())
