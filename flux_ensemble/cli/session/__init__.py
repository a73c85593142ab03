"""Following an ensemble for a command: in the service, or on this machine.

Handles signals, time limits, absences of the service, and the choice of where an ensemble runs.
"""
