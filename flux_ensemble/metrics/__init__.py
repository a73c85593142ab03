"""Metrics: their names, conditions on them, and streaming statistics.

Both `document` and `engine` use this package. No other package imports River.
"""
