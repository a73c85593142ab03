"""Features besides running jobs by rules: each is a folder here.

Nothing imports a feature, and no feature imports another. The rooms below ask
`flux_ensemble.feature_list` for the parts of all of them, so who removes a folder, and its name
there, removes the feature. A part is a module; a feature has those that it needs:

| part | has | asked for by |
|---|---|---|
| `keys` | `ACTIONS`, `TRIGGERS`: those that it adds | `document.keys` |
| | `JOB_KEYS`, `DOCUMENT_KEYS`, `ACTION_KEYS`: keys of groups, the top, actions | `document.keys` |
| | `SPELLED`: paths of values of parameters | `document.spellings` |
| `document` | `FEATURE`: reads these, a `document.feature.DocumentFeature` | `document.feature` |
| `metrics` | `METRICS`: metrics of the instance or of time, with their meaning | `metrics.names` |
| | `FAMILIES`: metrics of what has a name in the document | `metrics.families` |
| `fields` | `FIELDS`: what expressions know of a job by it | `metrics.job_row` |
| `entries` | entries of the eventlog about it | `eventlog` |
| `words` | `DEEDS`: what its actions do, for the log | `eventlog` |
| `algorithms` | `ALGORITHMS`: what `use` can name | `algorithms.builtin` |
| `engine` | `feature`: makes state and hooks, an `engine.feature.Feature` | `engine.engine` |
| `trial_row` | `describer`: makes the keys of a trial in the row of its job | `engine.job_view` |
| `advisers` | `processes`: makes what performs its commands | `service`, `queues.local` |
| `simulation` | `adviser`: makes that of a simulation | `queues.simulation` |
| `history` | `logged_searches`: those of a log | `cli.session.exports` |
| | `in_full`: what one tries, and all of its trials | `cli.commands.search` |
| `studies` | `write`: studies of Optuna | `cli.session.exports` |
"""
