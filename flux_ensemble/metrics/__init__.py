"""Names, conditions and streaming statistics: what documents say of metrics, and what engines keep.

The only room that knows River.
"""
