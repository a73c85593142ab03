"""Custom functions: called in a process of their own, one for each ensemble.

`worker` is the service's side, `process` the pipe between, `child` what runs in the process.
"""
