"""Providers of members: a folder for each kind of site that starts members and ends them.

The rooms ask `flux_ensemble.provider_list` for the parts of each, so who adds a folder, and its
name there, adds a provider. A part is a module:

| part | has | asked for by |
|---|---|---|
| `keys` | `PROVIDER`: a `document.keys.provider.PoolProvider` | `document` |
| `template` | `read_template`: reads what its key `template` names, if it has that | `document` |
| `checks` | `check`: whether the site takes the members of a pool, if it can be asked | `doctor` |
| `provider` | `make`: makes a `queues.nested.provider.Provider` | `site_providers` |

That of Flux is made by the service, which has the connection to its instance.
"""
