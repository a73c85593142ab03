"""Run by path; see the package for the arguments."""

from __future__ import annotations

import os.path
import sys

if __name__ == "__main__":
    # The directory that holds the package comes last, because some of its modules have names of
    # the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    __package__ = "supervisor"

    from .guard import main

    main()
