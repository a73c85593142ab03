"""Back ends, which change the size of members; `gateway.backend` has the contract."""
