"""The live view as a browser shows it: the stuck lock on top, with its holder, and a key that contains HTML as text.

Needs a headless Chromium, which writes down what has become of a page: scripts that run leave their traces.
"""

import html
import html.parser
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

# Long enough for a browser on a busy machine.
PATIENCE = 120

# The screens of readers: a phone, a small laptop, and a monitor. Each is a frame of that size in a page. A window of
# the full Chromium is never narrower than 500 pixels, but a frame has its given width in any browser.
SCREENS = [(390, 844), (1280, 800), (1920, 1080)]

# Measures the width of the page, the first row's cells on the screen, and broken parts of call sites. A call site may
# be broken only between its parts. The page forbids scripts, so that rule is removed first. The results go to the page
# around the frame.
MEASURE = """<script>
const lines = text => {
  const range = document.createRange();
  range.selectNodeContents(text);
  return range.getClientRects().length;
};
const parts = [...document.querySelectorAll('.site')].flatMap(site => [...site.childNodes].filter(node => node.nodeType === 3));
const inside = box => box.left >= 0 && box.right <= innerWidth && box.width > 0;
const cells = [...document.querySelectorAll('td, bdi, small, h1, p')].filter(cell => getComputedStyle(cell).display !== 'none');
parent.document.documentElement.dataset.measured = JSON.stringify({
  screen: innerWidth, page: document.documentElement.scrollWidth,
  cut: cells.filter(cell => !inside(cell.getBoundingClientRect()) || cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth)
    .map(cell => cell.textContent),
  seen: [...document.querySelectorAll('tbody tr:first-child td')].filter(cell => cell.getBoundingClientRect().bottom <= innerHeight)
    .map(cell => cell.dataset.label),
  parts: parts.length, broken: parts.filter(part => lines(part) > 1).map(part => part.data),
});
</script>"""

BROWSERS = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


class Page(html.parser.HTMLParser):
    """What is on the page: its elements, its title, and the rows of the table of locks with their text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.title, self.rows, self.at, self.measured = set(), "", [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        if tag == "html":
            self.measured = dict(attributes).get("data-measured")
        if tag not in ("meta", "img", "br"):
            self.at.append(tag)
        if tag == "tr" and "tbody" in self.at:
            self.rows.append((dict(attributes), []))

    def handle_endtag(self, tag):
        while tag in self.at and self.at.pop() != tag:
            pass

    def handle_data(self, data):
        if self.at[-1:] == ["title"]:
            self.title += data
        if "tr" in self.at and self.rows and data.strip():
            # A `<wbr>` is a possible break inside a word, so the text after it continues the word.
            if self.at[-1:] == ["wbr"]:
                self.rows[-1][1][-1] += data.strip()
            else:
                self.rows[-1][1].append(data.strip())


def open_page(address, work):
    """Loads a page, lets its scripts run, and returns what it has become."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        raise RuntimeError("no Chromium; scripts/need-observability.sh installs one")
    # Without the sandbox, which needs more rights than a container has. The browser opens only pages of this test.
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
               "--disable-background-networking", "--hide-scrollbars", "--window-size=1280,800"]
    why = []
    # On a busy machine a browser may fail to start, or hang. Three failures are a fault.
    for _ in range(3):
        # A killed browser leaves its lock file behind in its folder.
        with tempfile.TemporaryDirectory(dir=work, ignore_cleanup_errors=True) as folder, open(f"{work}/browser.log", "ab") as log:
            child = subprocess.Popen([*command, f"--user-data-dir={folder}", "--dump-dom", address], stdout=subprocess.PIPE, stderr=log,
                                     env={**os.environ, "HOME": work}, start_new_session=True)
            try:
                text, _ = child.communicate(timeout=PATIENCE)
                why.append(f"ended with {child.returncode} and {len(text)} bytes")
            except subprocess.TimeoutExpired:
                text = None
                why.append(f"was not done after {PATIENCE} s")
            finally:
                end_all_of(child)
            if text and child.returncode == 0:
                return Page(text.decode())
    raise RuntimeError(f"{browser}: {', '.join(why)}")


def end_all_of(child):
    """Ends a browser with the processes that it started: they are a group of their own."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def check(address, work, stuck, site, hostile, expect):
    """Looks at the page as somebody on call does. `expect` takes whether something holds, and what."""
    # Waiters give up and return, and the holder of the other key releases it now and then, so a single read may miss them.
    until = time.time() + PATIENCE
    while True:
        page = open_page(address, work)
        about = [row for row in page.rows if row[0]["data-key"] == stuck]
        rows = [text for row, text in page.rows if row["data-key"] == hostile]
        if len(about) > 1 and rows or time.time() > until:
            break
    expect(about, f"the stuck lock is on the page: {page.rows}")
    expect(page.rows[:len(about)] == about, f"what hurts most is on top: {page.rows}")
    (top, text), *waiting = about
    expect(top["data-state"] == "stuck" and site in text and stuck in text, f"the stuck lock names key and call site: {top} {text}")
    expect(waiting and all(row["data-state"] == "waiting" and site in words for row, words in waiting),
           f"those who wait are below it and say for whom: {waiting}")
    expect(page.title.startswith("(1 stuck)"), f"the title counts what is stuck: {page.title}")

    expect(rows and hostile in rows[0], f"the key that contains HTML is shown as it is: {rows}")
    expect(not page.elements & {"img", "script"}, f"it makes no element: {page.elements}")
    # Without escaping, the same key does run a script. So this browser would have shown it.
    with open(f"{work}/unescaped.html", "w", encoding="utf-8") as file:
        file.write(f"<!doctype html><title>Locks</title><p>{hostile}</p>")
    control = open_page(f"file://{work}/unescaped.html", work)
    expect(control.title == "pwned" and "img" in control.elements, f"the check would notice: {control.title}")


def check_on_screens(address, work, expect):
    """Looks at the page on screens of several sizes: nothing is cut off, call sites are whole, and the worst lock is read without
    moving the page."""
    until = time.time() + PATIENCE
    # The list of ended waits contains keys too.
    while True:
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            page = answer.read().decode()
        if '<li><bdi class="key">' in page or time.time() > until:
            break
        time.sleep(0.1)
    expect('<li><bdi class="key">' in page, "waits that are over are listed")
    # Every key is longer than a line. The rule against scripts and the reloading are removed.
    page = re.sub(r'(<bdi class="key">)[^<]*', r"\1" + "k" * 60, page)
    page = re.sub(r'<meta http-equiv="[^>]*>', "", page) + MEASURE
    for wide, high in SCREENS:
        with open(f"{work}/measured.html", "w", encoding="utf-8") as file:
            file.write(f'<!doctype html><title>A screen</title><iframe style="border:0;width:{wide}px;height:{high}px" '
                       f'srcdoc="{html.escape(page)}"></iframe>')
        found = json.loads(open_page(f"file://{work}/measured.html", work).measured or "{}")
        expect(found.get("screen") == wide and found["page"] <= wide, f"{wide} pixels show the page in its whole width: {found}")
        expect(found.get("cut") == [], f"nothing is cut off at {wide} pixels: {found}")
        expect(found.get("parts") and found["broken"] == [], f"call sites are broken only between their parts at {wide} pixels: {found}")
        expect({"Key", "Call site", "For", "Waiters"} <= set(found.get("seen", [])), f"the worst lock is read at once at {wide} pixels: {found}")
