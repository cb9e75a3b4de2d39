"""``python -m awa_trio`` is ``awa-trio``."""

from .cli import main

if __name__ == "__main__":
    main()
