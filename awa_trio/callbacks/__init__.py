"""Callbacks over HTTP: an ASGI application that resolves them, and the signature it asks for.

    from awa_trio.callbacks import receiver

    api = receiver(client, secret=os.environ["AWA_CALLBACK_SECRET"])

``POST {prefix}/{token}/{action}`` with a JSON body, signed. It is an ordinary ASGI callable:
mount it in any framework, on Trio or asyncio, or serve it with ``awa-trio callbacks serve``.
"""

from .._publish import publish as _publish
from ._receiver import Receiver as Receiver
from ._receiver import receiver as receiver
from ._signature import sign as sign

_publish(__name__, globals())
