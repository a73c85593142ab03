"""The ensemble as a state machine: events in, commands out.

Pure: no clock, no input or output, no randomness, no environment, so everything can be replayed.
Effects are commands that somebody else performs.
"""
