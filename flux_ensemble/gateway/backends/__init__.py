"""Back ends, which change the size of clusters; `gateway.backend` has the contract."""
