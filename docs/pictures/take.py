"""Takes the README's pictures, of a server and of the report of runs/quickstart: `make pictures`.

Needs the extras `viewing` and `browser`, and Chromium: the machine's own, or that of
`playwright install chromium`.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent
RUN = "runs/quickstart"
SENTENCE = "If it rains, the children cannot visit the museum."


def main() -> None:
    """Makes the report, starts the server, and looks at both."""
    report = [sys.executable, "eval.py", RUN, "--report", "--sentences", SENTENCE]
    subprocess.run(report, check=True)
    serving = [sys.executable, "-m", "transformer.serving.server", RUN, "--port", "0"]
    server = subprocess.Popen(serving, stdout=subprocess.PIPE, text=True)
    try:
        found = (re.search(r"http\S+", line) for line in server.stdout)
        address = next(filter(None, found), None)
        if address is None:
            sys.exit("the server did not start")
        take(address[0], (Path(RUN) / "report.html").absolute().as_uri())
    finally:
        server.terminate()


def take(page_address: str, report_address: str) -> None:
    """Writes page.png and attention.png."""
    installed = shutil.which("chromium") or shutil.which("google-chrome")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=installed, args=arguments)
        page = browser.new_page(viewport={"width": 820, "height": 400})
        page.goto(page_address)
        page.fill("#text", SENTENCE)
        for _ in range(2):  # the first waits for compilation; the second's time is shown
            with page.expect_response(lambda answer: answer.ok, timeout=120_000):
                page.click("#go")
        page.locator(".words button").nth(3).hover()
        page.screenshot(path=FOLDER / "page.png", full_page=True)
        page = browser.new_page(viewport={"width": 1180, "height": 700})
        page.goto(report_address)
        page.locator("#maps figure").nth(3).screenshot(path=FOLDER / "attention.png")
        browser.close()


if __name__ == "__main__":
    main()
