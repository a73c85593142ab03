"""Predictions: how long jobs take is learned from their parameters.

The longest jobs can go first, expressions have `job.predicted`, and `time.remaining` is when the
ensemble is over.
"""
