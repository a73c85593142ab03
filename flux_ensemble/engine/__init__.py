"""The ensemble as a state machine: events in, commands out.

Pure: no clock, no input or output, no randomness, no environment, so that everything can be
replayed. Whatever has to be done in the world is a command that somebody else performs.
"""
