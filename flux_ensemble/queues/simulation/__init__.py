"""Ensembles in virtual time: durations are drawn, and a clock jumps from event to event."""
