"""How fast it is, and at what cost, beside other queues: ``python -m tests.bench``.

It starts a PostgreSQL of its own with durable settings (fsync and synchronous_commit on),
runs every measure for every queue that is installed, interleaved, each in processes and a
database of its own, and prints medians and the ratios to the best of the other queues. (The
top level of the project is fixed, so the benchmarks live here.)

- `contenders`: the queues, each a small module with the same interface.
- `child`: the process in which a contender produces or works, told by the parent what to do.
- `parent`: the other end of that, and what /proc says of such a process.
- `ground`: the server, and what it has spent.
- `shared`: the measures that every contender takes part in.
- `inside`, `own`: those about this project alone.
- `figures`, `tables`, `plots`, `page`: from numbers to what is printed; no I/O.
"""
