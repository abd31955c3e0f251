"""Documents on standard input: `translate.py RUN --input html` and others."""

import pytest
from small_run import run


def test_a_document_keeps_everything_but_its_sentences(undisturbed):
    lines = ["old cat.", "red dog.", "old dog"]
    found = run("translate.py", undisturbed, stdin="".join(f"{line}\n" for line in lines))
    source = "<!DOCTYPE html>\r\n<p class='@'>old cat.  red dog.<hr></p>\n<b>old dog</b>\u00e9"
    expected = source = source.replace("\u00e9", "<!-- \u00e9 -->")
    for line, translation in zip(lines, found.stdout.splitlines(), strict=True):
        expected = expected.replace(line, translation.strip())
    result = run("translate.py", undisturbed, "--input", "html", stdin=source.encode())
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == expected


@pytest.mark.parametrize(
    "words, stdin, said",
    [
        (["--input", "xliff"], "<a>\n<b></a>", "the document is not XML: mismatched tag: line 2"),
        (["--target", "fr"], "old cat\n", "this model has one target language"),
    ],
)
def test_a_mistake_is_named(undisturbed, words, stdin, said):
    result = run("translate.py", undisturbed, *words, stdin=stdin)
    assert result.returncode == 2 and said in result.stderr and not result.stdout
