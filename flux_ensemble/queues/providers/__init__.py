"""Providers of members: a module, or a folder, for each kind of queue that members are jobs of."""
