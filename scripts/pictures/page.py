"""Writes the page of one dashboard, and prints how high it is: page.py DATA PAGE."""

import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
with open(sys.argv[2], "w", encoding="utf-8") as page:
    page.write(
        '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="host.css">'
        "<style>body{background:#111217;color:#ccccdc;font-family:Inter,Helvetica,Arial,sans-serif;margin:0}</style>"
        '<div id="root"></div><script>window.DASHBOARD='
        + json.dumps(dashboard).replace("<", "\\u003c")
        + '</script><script src="host.js"></script>'
    )
print(max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"]) * 38 + 60)
