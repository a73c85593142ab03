"""Metrics: their names, conditions on them, and streaming statistics.

Shared by `document` and `engine`. Only this room imports River.
"""
