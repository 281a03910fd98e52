"""Pages of reports: one table that a click sorts, in a browser."""

import html
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.page import page, write_page

ROWS = [("b", "3.5 dB", "1,000"), ("c", "-inf dB", "20"), ("a", "inf dB", "3"), ("d", "-", "4e2")]
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def shown(text: str, folder: Path) -> str:
    """The page behind its scripts."""
    assert BROWSER is not None
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    words = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync"
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [BROWSER, *words.split(), profile, "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return html.unescape(done.stdout)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_clicks_on_columns_sort_by_number_and_a_second_click_backwards(tmp_path: Path) -> None:
    made = page(
        "Report", ["All of it."], ("name", "noise", "work"), ROWS, classes=["bad", "", "", ""]
    )
    clicks = """<script>
    const heads = document.querySelectorAll("th"), found = [];
    for (const column of [0, 1, 2, 2]) {
      heads[column].click();
      found.push([...document.querySelectorAll("tbody tr")].map((row) => row.cells[0].textContent).join(""));
    }
    document.body.dataset.orders = found.join(" ");
    </script></body>"""
    text = shown(made.replace("</body>", clicks), tmp_path)
    assert 'data-rows="4"' in text
    assert 'data-orders="abcd cbad acdb bdca"' in text
    assert re.search(r'<tr class="bad"><td>b</td><td class="number">3.5 dB</td>', text)
    assert "<p>All of it.</p>" in text


def test_a_page_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CompileError, match=r"XC7001 .* cannot be written"):
        write_page(tmp_path / "file" / "page.html", "")
