"""An ensemble document: from YAML to a `Spec`, or everything that is wrong with it.

Pure: no queue, no network, no clock. What a value means to a running ensemble belongs in `engine`.
"""
