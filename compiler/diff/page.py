"""The report of `diff` as one HTML page that needs nothing else: no script, font or picture from elsewhere.

All that comes from the model is data in one JSON element, which a script of the page makes into text nodes: names can
hold any characters and never become markup.
"""

import json
from typing import Any

from xcompile.compiler.diff.report import HEADER, Report, cells

_LONGEST = 200
"""Names are shown up to so many characters; the rest is in the tooltip."""

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { padding: .2em .6em; text-align: left; border-bottom: 1px solid #ddd; max-width: 30em; }
td { overflow-wrap: anywhere; }
th { position: sticky; top: 0; background: #f4f4f4; }
tr.differs { background: #fdd; }
tr.carries { background: #fff3d0; }
li { overflow-wrap: anywhere; }
input { font: inherit; margin: 1em 0; width: 24em; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; }
  th { background: #2a2a2a; }
  td, th { border-color: #444; }
  tr.differs { background: #522; }
  tr.carries { background: #443800; }
}
"""

_SCRIPT = """
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
function add(parent, kind, text) {
  const made = parent.appendChild(document.createElement(kind));
  if (text !== undefined) {
    const short = text.length > report.longest ? text.slice(0, report.longest) + "…" : text;
    made.textContent = short;
    if (short !== text) made.title = text;
  }
  return made;
}
add(document.body, "h1", "xcompile diff: " + report.model);
add(document.body, "p", report.summary + "; compiled for " + report.target);
if (report.culprits.length) {
  const list = add(document.body, "ol");
  list.id = "culprits";
  for (const culprit of report.culprits) add(list, "li", culprit);
} else {
  add(document.body, "p", "Nothing is wrong.");
}
const filter = add(document.body, "input");
filter.placeholder = "Show rows with this text";
const table = add(document.body, "table");
const head = add(add(table, "thead"), "tr");
for (const word of report.header) add(head, "th", word);
const body = add(table, "tbody");
for (const row of report.rows) {
  const made = add(body, "tr");
  made.className = row[0];
  for (const cell of row) add(made, "td", cell);
}
filter.oninput = () => {
  for (const [i, row] of report.rows.entries())
    body.rows[i].hidden = !row.some((cell) => cell.includes(filter.value));
};
document.body.dataset.rows = String(body.rows.length);
"""


def page(report: Report) -> str:
    """The page, as text."""
    data: dict[str, Any] = {
        "model": report.model,
        "target": report.target,
        "summary": report.summary(),
        "culprits": [str(culprit) for culprit in report.culprits],
        "header": HEADER,
        "rows": [cells(row) for row in report.sorted_rows()],
        "longest": _LONGEST,
    }
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        f"<title>xcompile diff</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<script id="report" type="application/json">{_embedded(data)}</script>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def _embedded(data: object) -> str:
    """JSON that may stand in a script element: nothing in it can end the element, or be a line break to a script."""
    text = json.dumps(data, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
