"""Members that are Flux instances of their own, jobs of the enclosing instance or reached by a URI.

`jobspec` says what such a job is; `connection` and `pump` are how the service speaks to an instance
without ever waiting for it.
"""
