"""The local queue: jobs as processes of this machine, and runs that go on after a kill."""
