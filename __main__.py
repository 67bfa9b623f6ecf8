"""`python -m phloem`: the command line, for where no script is on the path."""

from __future__ import annotations

from .runtime.cli import main

if __name__ == "__main__":
    main()
