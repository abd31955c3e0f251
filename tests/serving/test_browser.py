"""Page and report in a real browser, without a window: `make browser-test`."""

import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="needs the extra `browser`: make browser-test"
)

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALLED = next(filter(None, map(shutil.which, NAMES)), None)
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
QUIET = [
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    """Chromium: the machine's, or playwright's own (playwright install chromium)."""
    alone = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as tool:
        try:
            found = tool.chromium.launch(executable_path=INSTALLED, args=[*QUIET, *alone])
        except playwright.Error as error:
            pytest.skip(f"no browser (playwright install chromium): {error.message[:80]}")
        yield found
        found.close()


@contextmanager
def opened(browser, address, size="desktop", scheme="light", refused=False):
    """A page without complaints in its console, but for those of what was `refused`."""
    width, height = SIZES[size]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    complaints = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    yield page
    page.close()
    assert refused or complaints == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_sentence_is_typed_and_its_translation_read(browser, client, models, size, scheme):
    from transformer.decoding.translator import make_translator, translate

    [expected] = translate(make_translator(*models["translator"]), ["the cat sees a dog"])
    with opened(browser, f"http://127.0.0.1:{client.port}", size, scheme) as page:
        page.fill("#text", "the cat sees a dog")
        page.click("#go")
        assert page.inner_text("[data-role=translation]") == expected
        assert page.locator("tr").count() == 1 + 4
        assert page.locator(".sure").count() == len(expected.split())
        assert page.get_attribute(".sure >> nth=0", "title").startswith("confidence ")
        page.hover(".words button >> nth=0")
        assert "%" in page.inner_text(".reading")
        assert nothing_sticks_out(page)


def test_every_kind_of_run_can_be_tried_and_mistakes_are_shown(browser, client):
    with opened(browser, f"http://127.0.0.1:{client.port}") as page:
        for run, text, shown in (
            ("language model", "the cat", "log-probability of the new text"),
            ("masked model", "the __ sees", "Blank 1"),
            ("masked model", "no mask", "The text has no mask"),
            ("classifier", "the cat", "one"),
        ):
            page.select_option("#runs", run)
            page.fill("#text", text)
            page.keyboard.press("Control+Enter")
            page.get_by_text(shown).first.wait_for()
        page.select_option("#runs", "translator")
        page.fill("#text", "<b>the</b> cat " * 2)
        page.click("#go")
        page.locator("[data-role=translation]").wait_for()
        assert page.locator("#answers b").count() == 0


def test_a_file_is_translated_and_downloaded(browser, client, models, tmp_path):
    from transformer.decoding.translator import make_translator, translate

    texts = ["the cat sees a dog", "the dog"]
    first, second = translate(make_translator(*models["translator"]), texts)
    file = tmp_path / "two.html"
    file.write_text("<p>the <b>cat</b> sees a dog</p><p>the dog</p>", encoding="utf-8")
    with opened(browser, f"http://127.0.0.1:{client.port}", refused=True) as page:
        page.set_input_files("#file", file)
        with page.expect_download() as found:
            page.click("#answers a")
        assert found.value.suggested_filename == "two_de.html"
        content = Path(found.value.path()).read_text(encoding="utf-8")
        assert re.sub("</?b>", "", content) == f"<p>{first}</p><p>{second}</p>"
        assert nothing_sticks_out(page)
        (tmp_path / "two.docx").write_bytes(b"PK")
        page.set_input_files("#file", tmp_path / "two.docx")
        page.get_by_text("no known format").wait_for()
        page.select_option("#runs", "language model")
        assert not page.is_visible("#file")


def test_an_error_is_shown_as_a_sentence(browser, client):
    with opened(browser, f"http://127.0.0.1:{client.port}", refused=True) as page:
        page.fill("#text", "the cat sees a dog " * 5)
        page.click("#go")
        page.get_by_text("a sentence of 25 tokens is too long: at most 20 are allowed").wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_the_report_shows_its_maps_when_pointed_at(browser, report, size):
    with opened(browser, f"file://{report}", size) as page:
        page.hover(".map .cell >> nth=0")
        assert "attends to" in page.inner_text("#reading")
        before = page.locator(".map .cell").count()
        page.select_option("#kind", index=0)
        assert page.locator(".map .cell").count() != before
        assert page.locator(".curve svg").count() == 5
        assert nothing_sticks_out(page)


def test_widgets_of_notebooks_compare_heads_and_step_through_a_beam(browser, models, tmp_path):
    from transformer.decoding.translator import best_hypotheses, make_translator
    from transformer.viewing.attention import attention_maps
    from transformer.viewing.beam import beam_steps
    from transformer.viewing.widgets import attention_widget, beam_widget

    config, params, tokenizers = models["translator"]
    translator = make_translator(*models["translator"])
    text = "the cat sees a dog"
    [found] = best_hypotheses(translator, [text])
    maps = attention_maps(config.model, params, tokenizers, text, found.text)
    steps = beam_steps(translator, text)
    widgets = (
        attention_widget({"the model": maps}),
        beam_widget(steps, tokenizers.target, found.tokens),
    )
    for number, widget in enumerate(widgets):
        (tmp_path / f"{number}.html").write_text(widget._repr_html_(), encoding="utf-8")
    with opened(browser, f"file://{tmp_path}/0.html") as page:
        frame = page.frame_locator("iframe")
        frame.locator(".map .cell >> nth=0").hover()
        assert "attends to" in frame.locator(".reading >> nth=0").inner_text()
        cells = frame.locator("figure >> nth=0").locator(".map .cell")
        assert cells.count() == maps[-1].weights[0, 0].size
        frame.locator("select >> nth=1").select_option(index=0)
        assert cells.count() == maps[0].weights[0, 0].size
    with opened(browser, f"file://{tmp_path}/1.html") as page:
        frame = page.frame_locator("iframe")
        assert frame.locator("tr").count() == 1 + len(steps[0])
        for _ in steps[1:]:
            frame.get_by_text("On", exact=True).click()
        assert frame.locator("strong").inner_text() == f"token {len(steps)} of {len(steps)}"
        assert frame.locator("tr").count() == 1 + len(steps[-1])
        assert frame.get_by_text("On", exact=True).is_disabled()


def nothing_sticks_out(page):
    """Whether the page is as wide as its window."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
