"""Every format: what is read is written as it was, and a translator that copies changes nothing
but what it adds."""

import os

import pytest
from document_grammar import DOCUMENTS
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.documents import FORMATS
from transformer.documents.document import original, segments
from transformer.documents.formats import format_of, read_document, read_text
from transformer.documents.translation import Handling, translated, unchanged
from transformer.errors import UserError

EXAMPLES = int(os.environ.get("DOCUMENTS", 40))


def read(source, form):
    return read_document(source, form, ("en", "de"))


def copied(document):
    return translated(document, lambda sentences, _: [*map(unchanged, sentences)], Handling("en"))


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_documents_are_written_as_they_were_and_copies_change_nothing(form, data):
    source, expected = data.draw(DOCUMENTS[form])
    document = read(source, form)
    assert original(document) == source
    assert copied(document) == expected


@pytest.mark.parametrize("form", FORMATS)
@given(source=st.text(max_size=60))
def test_any_text_is_read_or_refused(form, source):
    try:
        document = read(source, form)
    except UserError:
        assert form in ("srt", "po", "xliff", "tmx")
    else:
        assert original(document) == source
        copied(document)


def texts(source, form):
    return [one.text for one in segments(read(source, form))]


def test_html_is_cut_into_texts_at_blocks_and_not_at_inline_elements():
    page = """<title>A &amp; B</title><script>no</script><p>One <b>two</b>,<br>three&nbsp;<i>four
        </i>.<p>Five<!-- no --> six <code>no</code>.<div translate=no>no</div><td>7</td>"""
    assert texts(page, "html") == ["A & B", "One two, three four.", "Five six."]
    assert texts("a<?php if (x): ?>b<![endif]>c", "html") == ["a", "b", "c"]
    assert texts("see <![1]> <![ b> and <![foo[b]]> c", "html") == ["see and c"]  # comments
    assert texts("<p translate=no>a<p>b", "html") == ["a", "b"]  # it does not end
    assert texts("<script src='a.js'/><p>a &#1; b &fjlig;c <b", "html") == ["a b c <b"]


def test_lines_of_a_cue_are_one_text_unless_they_are_said_by_two():
    cues = (
        "1\n00:00:01,000 --> 00:00:02,000\n<i>One\ntwo.</i>\n\n2\n00:00:03.000 --> 00:00:04.000\n"
    )
    assert texts(f"{cues}- Three\nfour.\n- Five.\n", "srt") == ["One two.", "Three four.", "Five."]
    assert texts(f"{cues}Three.\n2\n00:00:05.000 --> 00:00:06.000\n \n4\nfour", "srt") == [
        "One two.",
        "Three.",
        "4 four",
    ]
    times = "00:00:01,000 --> 00:00:02,000\n"
    blank = f"1\n{times}\nOne\n\ntwo.\n\n2\n{times}Three."
    assert texts(blank, "srt") == ["One", "two.", "Three."]
    cue = "00:01.000 --> 00:02.000\n<v Jo>a &amp; <00:01.500>b\n\n"
    assert texts(f"WEBVTT\n\n{cue}NOTE c\n\n2\n{cue}", "srt") == ["a & b", "a & b"]


def test_elements_that_are_not_to_be_translated_are_not_and_xliff_2_gets_its_target_language():
    unit = '<unit{}><segment><source>a <ph id="1"/>b</source></segment></unit>'
    source = '<xliff srcLang="en"><file><group translate="no">{}{}</group>{}</file></xliff>'
    source = source.format(unit.format(""), unit.format(' translate="yes"'), unit.format(""))
    assert texts(source, "xliff") == ["", "a b", "a b"]
    found = copied(read(source, "xliff"))
    assert found.count("<target>a") == 2 and 'srcLang="en" trgLang="de">' in found
    assert copied(read(source.replace(">", " trgLang=''>", 1), "xliff")) == found


def test_languages_are_written_as_these_formats_write_them():
    def written(source, form):
        return copied(read_document(source, form, ("en", "pt_BR")))

    unit = "<unit><segment><source>a</source></segment></unit>"
    source = f'<xliff srcLang="en"><file>{unit}</file></xliff>'
    assert 'trgLang="pt-BR"' in written(source, "xliff")
    memory = '<tmx><tu><tuv xml:lang="en"><seg>a</seg></tuv></tu></tmx>'
    assert '<tuv xml:lang="pt-BR"><seg>a</seg>' in written(memory, "tmx")


def test_an_empty_segment_of_a_translation_memory_is_filled():
    source = '<tmx><tu><tuv lang="EN"><seg>a</seg></tuv><tuv lang="DE-de"><seg/></tuv></tu></tmx>'
    assert copied(read(source, "tmx")) == source.replace("<seg/>", "<seg>a</seg>")


def test_a_language_with_one_form_gets_the_translation_of_the_plural():
    source = 'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    for more, expected in (("", ["%d files"]), ('msgstr[1] ""\n', ["one file", "%d files"])):
        assert texts(source + more, "po") == expected


def test_messages_are_texts_without_escapes_and_tags():
    source = 'msgid ""\n"Press \\"OK\\"\\n"\n"or <b>wait</b>"\nmsgstr ""\n'
    assert texts(source, "po") == ['Press "OK" or wait']
    assert texts('msgid ""\n"Language: fr"\nmsgstr ""\n', "po") == ["Language: fr"]
    source = '\ufeffdomain "x"\n  msgid\n  "One " "two\\n" "\\x54hree"\nmsgstr ""\n'
    assert copied(read(source, "po")).endswith('msgstr "One " "two\\n" "\\x54hree"\n')


@pytest.mark.parametrize(
    ("form", "source", "said"),
    [
        ("po", 'msgid "a"\nmsgstr ""\nfoo\n', "line 3 is no line of a .po file: 'foo'"),
        ("po", 'msgid "a\nmsgstr ""\n', "line 1 is no line"),
        ("po", '"a"\n', "line 1 is no line"),
        ("xliff", "<xliff>\n<a></xliff>", "not XML: mismatched tag: line 2"),
        ("srt", "1\nno cue\n", "no line of times"),
        ("xliff", "<a/>", "no <trans-unit> and no <segment>"),
        (
            "po",
            'msgid ""\nmsgstr ""\n"Language: fr\\n"\n',
            "translated to fr, but the model translates to de",
        ),
        ("xliff", "", "not XML: no element found"),
        ("xliff", '<xliff srcLang="en" trgLang="fr">a</xliff>', "translated to fr, but"),
        ("xliff", '<xliff><file source-language="fr">a</file></xliff>', "translated from fr, but"),
        ("tmx", "<tmx><tu><tuv xml:lang='fr'><seg>a</seg></tuv></tu></tmx>", "no <tuv> in en"),
    ],
)
def test_other_text_is_refused_with_its_line(form, source, said):
    with pytest.raises(UserError, match=said):
        read(source, form)


def test_formats_are_known_by_the_ends_of_names():
    names = {
        "a.HTML": "html",
        "b.vtt": "srt",
        "c.d.pot": "po",
        "e.xlf": "xliff",
        "f.txt": "paragraphs",
    }
    assert {name: format_of(name) for name in names} == names
    with pytest.raises(UserError, match=r"'a\.docx' is a file of no known format"):
        format_of("a.docx")


def test_a_document_is_utf8_and_keeps_its_byte_order_mark():
    assert read_text("\ufeffa\r\n".encode()) == "\ufeffa\r\n"
    with pytest.raises(UserError, match="line 2 of the document is not UTF-8"):
        read_text(b"a\n\xff")
