"""`python -m holdfast`: the command line."""

from __future__ import annotations

from holdfast.ops.cli import main

if __name__ == "__main__":
    main()
