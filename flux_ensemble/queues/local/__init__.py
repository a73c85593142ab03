"""The local queue: jobs as processes of this machine, and runs that can go on after a kill."""
