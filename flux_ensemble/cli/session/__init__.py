"""What goes on while a command follows an ensemble: in the service, or on this machine.

Signals, time limits, a service that is away for a while, and where an ensemble is to be found.
"""
