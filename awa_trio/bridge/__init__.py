"""Enqueue in transactions of SQLAlchemy, Django and asyncpg.

    from awa_trio import bridge

    with Session(engine) as session, session.begin():
        session.add(order)
        session.flush()
        bridge.enqueue(session, Ship(order.id))     # exists if and when the order does

The order and its job commit together, or neither does. With an ``AsyncSession``, an
``AsyncConnection`` or an asyncpg connection the call is awaited. Nothing has to be installed that
you do not use, and nothing is imported that you have not.
"""

from .._app.bridging import enqueue as enqueue
from .._app.bridging import enqueue_many as enqueue_many
from .._publish import publish as _publish

_publish(__name__, globals())
