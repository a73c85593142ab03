"""Back ends: what changes the size of a member, behind the contract in `gateway.backend`."""
