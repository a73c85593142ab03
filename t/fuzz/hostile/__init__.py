"""What requests.py sends to the service, and how it is judged what comes of it.

values ──► documents ──► recipes ──► rounds of steps ──► Stage.play ──► findings

A *step* is one message that is sent, or one thing that is done to the service, as JSON: so a
sequence of steps can be written to a file and played again. The steps of a *round* are sent at
once; then their answers are awaited. A *scene* is some rounds on the same ensembles, which are
unloaded at its end. A *stage* is a Flux instance with the service.
"""
