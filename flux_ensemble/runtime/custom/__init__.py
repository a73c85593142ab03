"""Custom functions, called in one process for each ensemble.

`caller` is the service's side, `process` the connection between them, and `child` the program of
the process.
"""
