"""Reports as one HTML page that needs nothing else: no script, font or picture from elsewhere.

All that comes from a model is data in one JSON element, which a script of the page makes into text nodes: names can
hold any characters and never become markup.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xcompile.compiler.support.errors import CompileError

_LONGEST = 200
"""Names are shown up to so many characters; the rest is in the tooltip."""

_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; }
p, li { overflow-wrap: anywhere; max-width: 60em; }
table { border-collapse: collapse; }
th, td { padding: .2em .6em; text-align: left; border-bottom: 1px solid #ddd; max-width: 30em; }
td { overflow-wrap: anywhere; }
td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: #f4f4f4; cursor: pointer; }
tr.bad { background: #fdd; }
tr.doubtful { background: #fff3d0; }
input { font: inherit; margin: 1em 0; width: 24em; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; }
  th { background: #2a2a2a; }
  td, th { border-color: #444; }
  tr.bad { background: #522; }
  tr.doubtful { background: #443800; }
}
"""

_SCRIPT = """
"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
function add(parent, kind, text, longest = report.longest) {
  const made = parent.appendChild(document.createElement(kind));
  if (text !== undefined) {
    const short = text.length > longest ? text.slice(0, longest) + "…" : text;
    made.textContent = short;
    if (short !== text) made.title = text;
  }
  return made;
}
function number(text) {
  const found = /^(-?)(inf|[\\d,.]+(?:e[-+]?\\d+)?)( ?%| dB)?$/.exec(text);
  if (!found) return NaN;
  const size = found[2] === "inf" ? Infinity : Number(found[2].replaceAll(",", ""));
  return found[1] ? -size : size;
}
add(document.body, "h1", report.title);
for (const line of report.paragraphs) add(document.body, "p", line, 10 * report.longest);
if (report.points.length) {
  const list = add(document.body, "ol");
  for (const point of report.points) add(list, "li", point);
}
if (report.rows.length) {
  const filter = add(document.body, "input");
  filter.placeholder = "Show rows with this text";
  const table = add(document.body, "table");
  const head = add(add(table, "thead"), "tr");
  const body = add(table, "tbody");
  const rows = report.rows.map((cells, i) => {
    const made = add(body, "tr");
    made.className = report.classes[i];
    for (const cell of cells)
      if (!isNaN(number(cell))) add(made, "td", cell).className = "number";
      else add(made, "td", cell);
    return { cells, made };
  });
  filter.oninput = () => {
    for (const { cells, made } of rows)
      made.hidden = !cells.some((cell) => cell.includes(filter.value));
  };
  report.header.forEach((word, column) => {
    let sign = -1;
    const cell = add(head, "th", word);
    cell.title = "Sort by " + word;
    cell.onclick = () => {
      sign = -sign;
      const key = ({ cells }) => [number(cells[column]), cells[column]];
      const order = ([a, s], [b, t]) =>
        isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) || s.localeCompare(t) : a === b ? 0 : a - b;
      rows.sort((x, y) => sign * order(key(x), key(y)));
      for (const { made } of rows) body.append(made);
    };
  });
  document.body.dataset.rows = String(body.rows.length);
}
"""


def page(
    title: str,
    paragraphs: Sequence[str],
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    points: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> str:
    """A page with one table, which can be filtered and, by a click on a column's head, sorted.

    Args:
        title: its head line.
        paragraphs: what stands above the table.
        header: the names of the columns.
        rows: the cells of each row as text; numbers stand right.
        points: a numbered list above the table.
        classes: for each row "bad", "doubtful" or "", which colours it.
    """
    data: dict[str, Any] = {
        "title": title,
        "paragraphs": list(paragraphs),
        "points": list(points),
        "header": list(header),
        "rows": [list(row) for row in rows],
        "classes": list(classes) or [""] * len(rows),
        "longest": _LONGEST,
    }
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
        f"<title>xcompile</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f'<script id="report" type="application/json">{_embedded(data)}</script>\n'
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def write_page(path: Path, text: str) -> None:
    """Write a page, whole or not at all.

    Raises:
        CompileError: XC7001 when it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        raise CompileError("XC7001", f"{path} cannot be written: {error.strerror}") from error


def _embedded(data: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end the element, or be a line break to a script."""
    text = json.dumps(data, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
