"""A page to look after jobs: an ASGI application, and a server for it on Trio.

    from awa_trio.web import create_app

    starlette_app.mount("/queue", create_app(client, token=os.environ["AWA_WEB_TOKEN"]))

It is an ordinary ASGI callable, on Trio or asyncio. ``awa-trio web`` serves it, and so does
`serve` in a Trio program's own nursery. Needs the extra ``web``.
"""

from .._publish import publish as _publish
from ._app import WebApp as WebApp
from ._app import create_app as create_app
from ._serve import serve as serve

_publish(__name__, globals())
