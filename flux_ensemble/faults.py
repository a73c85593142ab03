"""Faults that must stay local, and must not end the service that everything depends on.

A broker module that dies takes the user's Flux instance with it. So code that calls something on
behalf of one ensemble, or passes a callback to Flux, catches every fault:

    try:
        work()
    except ENDINGS:
        raise
    except BaseException as error:
        report(error)

`except Exception` is not enough: a panic of compiled code (River's, by PyO3) is none.
"""

from __future__ import annotations

#: Exceptions by which this process, or a generator, is asked to end. Any other is a fault.
ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit)
