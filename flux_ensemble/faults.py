"""What may go wrong in one place, and must not end the service that everything depends on.

A broker module that dies takes the user's Flux instance with it. So whoever calls something on
behalf of one ensemble, or hands Flux a callback, catches what is raised:

    try:
        work()
    except ENDINGS:
        raise
    except BaseException as error:
        report(error)

`except Exception` is not enough: a panic of compiled code (River's, by PyO3) is none.
"""

from __future__ import annotations

#: Somebody wants this process, or a generator, to end. Whatever else is raised is a fault.
ENDINGS = (KeyboardInterrupt, SystemExit, GeneratorExit)
