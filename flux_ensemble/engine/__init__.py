"""The ensemble as a state machine: events in, commands out.

The package is pure: no clock, no input or output, no randomness, no environment. So everything can
be replayed. Effects are commands that the caller performs.
"""
