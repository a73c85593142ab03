"""Scaling: rules change the number of nodes of the instance, or of members of a pool."""
