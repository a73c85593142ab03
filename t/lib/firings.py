"""Print the firings of a recording, one line each: rule, number, action and its label.

In the order of the rules, because two members need not end jobs in the same order.
"""

import json
import sys

firings = []
with open(sys.argv[1], encoding="utf-8") as recording:
    for line in recording:
        for command in json.loads(line).get("commands", ()):
            if command["type"] == "Record" and command["name"] == "fire":
                fired, action = command["context"], command["context"]["action"]
                name, label = action["name"], action.get("label")
                firings.append((fired["rule"], fired["firing"], name, label))
for firing in sorted(firings):
    print(*firing)
