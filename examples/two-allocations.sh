#!/bin/sh
# Begin two-allocations.yaml, or go on with it: see there.
flux ensemble supervise
if flux ensemble status two-allocations >/dev/null 2>&1; then
    exec flux ensemble watch two-allocations
fi
exec flux ensemble run two-allocations.yaml
