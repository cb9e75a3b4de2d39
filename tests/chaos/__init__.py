"""Worker processes, producers and a server, and what befalls them; what must hold all the same.

``python -m tests.chaos --help`` runs it for as long as one likes; ``test_chaos`` for a moment.

- `faults`: what can happen, each a value of its own; add one there.
- `invariants`: what must hold afterwards, each a function.
- `ground`: the servers. `places`: who has which way to them. `app`: the jobs. `worker`: a
  worker's process. `scene`: all of these at work.
- `ledger`: what everybody has seen, kept outside the queue. `evidence`: that, put together.
- `tracing`: a run replayed against the models in docs/model. `run`: one run. `report`: what it
  was like. `bugs`: products that are broken on purpose.
"""
