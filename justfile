# The tests: real PostgreSQL, real processes; add arguments for pytest
test *arguments:
    pytest -n 2 {{arguments}}

# The tests that take minutes, such as two hundred workers killed
test-slow *arguments:
    pytest -m slow {{arguments}}

# Style, and mistakes that style finds
lint:
    ruff check .
    ruff format --check .

# Rewrite what a formatter can
format:
    ruff check --fix .
    ruff format .

# Types, by two checkers that disagree in useful ways
types:
    mypy
    pyright

# Whether the snippets in the documentation run
docs:
    pytest tests/test_docs.py

# Write the commands and their options into docs/reference/cli.md
cli-page:
    python -m tests.cli.pages
# The documentation as a site, in build/docs/site
site:
    python -m tests.docsite

# The same, shown on loopback until Ctrl-C; --port
site-serve *arguments:
    python -m tests.docsite --serve {{arguments}}

# What the model checker says of each model of docs/model
model *words:
    python -m tests.model {{words}}

# The same at larger bounds: minutes
model-deep *words:
    python -m tests.model --deep {{words}}

# Figures beside other queues, on a server of the benchmark's own; --write for the page
bench *arguments:
    python -m tests.bench {{arguments}}

# The tests on each Python, server, set of packages and pooler that this machine has
matrix *arguments:
    python -m tests.matrix {{arguments}}

# An hour of mixed load on one worker, and whether anything grew; --minutes, --engine
soak *arguments:
    python -m tests.soak {{arguments}}
# Workers, servers and networks that die, and what must hold all the same; --minutes, --faults, --seed
chaos *arguments:
    python -m tests.chaos {{arguments}}

# Jobs on real input, and their result checked
demo *arguments:
    awa-trio demo {{arguments}}

# The pictures of the page in the documentation, taken in a browser
pictures *names:
    python -m tests.web.pictures {{names}}

# Everything that must hold before a change lands
ci: lint types
    pytest -n 2
