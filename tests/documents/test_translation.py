"""What is translated of a document, and in what order; placeholders."""

import re
import time

import numpy as np
import pytest
from document_grammar import WORDS
from hypothesis import given
from hypothesis import strategies as st

from transformer.documents.formats import read_document
from transformer.documents.placeholders import NUMBERS, PLACEHOLDER
from transformer.documents.placement import Aligned
from transformer.documents.translation import Handling, translated, unchanged
from transformer.documents.units import units

KEPT = "https://example.org/a?b=1&c=2 www.example.org a.b+c@example.org {name} {0} {0:.2f} {{x.y}}"
KEPT += " ${v} %{v} #{v} {{{x}}} {a[0]} %s %1$s %d %-5.2f %(name)s %@ %% %*d %<PRIu64> %I64d %n %1"
KEPT += " 🙂 👩🏽‍🔬 🇩🇪 ❤️ 3️⃣ {n,plural,=0{no<b>x}other{%d}} {%if-x%} <%=x%>"


class Reversing:
    """A translator of a small vocabulary: it reverses the words of a sentence, writes them in
    capitals, and drops what it does not know."""

    def __init__(self, known):
        self.known, self.asked = known, []

    def __call__(self, sentences, needs_alignment):
        self.asked.append(sentences)
        return [self.one(sentence) for sentence in sentences]

    def one(self, sentence):
        spans = units(sentence)
        words = [sentence[slice(*span)] for span in spans]
        kept = [number for number, word in enumerate(words) if word.lower() in self.known][::-1]
        weights = np.zeros((len(kept), len(words)))
        weights[np.arange(len(kept)), kept] = 1
        return Aligned(" ".join(words[number].upper() for number in kept), weights)


def result(source, translator, form="paragraphs", **handling):
    return translated(
        read_document(source, form, ("en", "de")), translator, Handling("en", **handling)
    )


def test_each_sentence_is_translated_alone_and_the_space_around_it_stays():
    translator = Reversing({"dr", "brown", "two", "three", "four", "five", "six"})
    source = "  Dr. Brown two.  Three four!\n\n\t12.5\r\nfive <six>\n"
    assert result(source, translator) == "  TWO BROWN DR  FOUR THREE\n\n\t12.5\r\nSIX FIVE\n"
    assert translator.asked == [["Dr. Brown two.", "Three four!", "five <six>"]]


def test_a_space_comes_between_sentences_of_a_script_that_has_none():
    translator = Reversing({"一", "二"})
    translator.one = lambda text: Aligned(f"One{len(text)}.", np.zeros((3, len(units(text)))))
    assert result("一二。二。\n", translator) == "One3. One2.\n"
    translator.one = lambda text: Aligned(f"{text[:-1]}!", np.eye(len(units(text))))
    assert result("一。二。", translator) == "一! 二!"


def test_each_sentence_keeps_its_part_of_an_element():
    translator = Reversing({"one", "two", "three", "four"})
    page = "<i>One <b>two. Three</b> four.</i><br>"
    found = result(page, translator, "html")
    assert re.sub("<[^>]*>", "", found) == "TWO ONE FOUR THREE"
    assert re.findall("<[^>]*>", found) == ["<i>", "<b>", "</b>", "</i>", "<br>"]


def test_a_sentence_with_markup_is_translated_whole():
    translator = Reversing({"one", "two", "three"})
    assert (
        result("<p>one <b>two</b> three</p>", translator, "html") == "<p>THREE <b>TWO</b> ONE</p>"
    )
    assert translator.asked == [["one two three"]]


@pytest.mark.parametrize("placeholder", KEPT.split())
def test_a_placeholder_is_kept_before_the_word_after_it(placeholder):
    assert PLACEHOLDER.fullmatch(placeholder)
    translator = Reversing({"one", "two", "three"})
    assert result(f"one {placeholder} two three", translator) == f"THREE {placeholder} TWO ONE"
    assert result(f"{placeholder} one", translator) == f"{placeholder} ONE"
    assert result(f"one two {placeholder}", translator) == f"TWO ONE {placeholder}"
    assert translator.asked[1] == ["one two three"]


def test_a_placeholder_that_the_model_copies_is_left_to_it():
    translator = Reversing({"one", "two"})
    translator.one = lambda text: Aligned(
        text.title().replace("%S", "%s"), np.eye(len(units(text)))
    )
    assert result("one %s two", translator) == "One %s Two"
    assert translator.asked == [["one %s two"]]


def test_a_format_directly_before_letters_is_kept():
    found = [match[0] for match in PLACEHOLDER.finditer("%dMB and %dx%d, 5%s")]
    assert found == ["%d", "%d", "%d", "%s"]


def test_lines_of_a_message_are_translated_one_by_one():
    translator = Reversing({"one", "two", "three"})
    source = 'msgid "one two\\n"\n"three\\n"\nmsgstr ""\n'
    assert result(source, translator, "po").endswith('msgstr "TWO ONE\\n"\n"THREE\\n"\n')


def test_deep_elements_and_long_sentences_are_translated():
    deep = "<b>" * 1500 + "one two" + "</b>" * 1500 + "</i>" * 1500
    translator = Reversing({"one", "two"})
    assert result(f"<p>{deep}</p>", translator, "html") == f"<p>{deep}</p>".replace(
        "one two", "TWO ONE"
    )
    assert result("one two " * 2000, translator).count("TWO ONE") == 2000
    assert max(map(len, translator.asked[-1])) <= 1000


@pytest.mark.parametrize(
    ("form", "before", "repeated", "times"),
    [
        ("html", "", "<var>", 2000),
        ("srt", "00:00:01,000 --> 00:00:02,000\n", "a\n", 100),
    ],
)
def test_the_time_does_not_grow_with_the_square_of_the_length(form, before, repeated, times):
    def seconds(count):
        found = []
        for _ in range(5):
            start = time.process_time()
            result(before + repeated * count, copies, form)
            found.append(time.process_time() - start)
        return min(found)

    copies = lambda sentences, _: [*map(unchanged, sentences)]  # noqa: E731
    assert seconds(4 * times) < 9 * seconds(times)  # the square would be 16 times


def test_numbers_are_kept_if_that_is_wanted():
    translator = Reversing({"one", "two"})
    assert result("one 1,234.5 two", translator) == "TWO ONE"
    assert result("one 1,234.5 two", translator, keep_numbers=True) == "1,234.5 TWO ONE"
    assert NUMBERS.fullmatch("1,234.5") and not PLACEHOLDER.search("1,234.5")


@pytest.mark.parametrize(
    "text", ["{no item}", "100% sure", "5 % discount", "a {b", "a_b@", "$5", "#1", "© 2026"]
)
def test_other_text_is_no_placeholder(text):
    assert not PLACEHOLDER.search(text)


@given(
    words=st.lists(st.sampled_from([*WORDS, *KEPT.split()]), max_size=12), seed=st.integers(0, 9)
)
def test_placeholders_are_there_as_often_as_in_the_source_whatever_is_translated(words, seed):
    random, source = np.random.default_rng(seed), " ".join(words)

    def translate(sentences, needs_alignment):
        texts = [" ".join(random.choice(["ja", "nein", "12", "?"], 4)) for _ in sentences]
        return [
            Aligned(text, random.random((len(units(text)), len(units(sentence)))))
            for text, sentence in zip(texts, sentences)
        ]

    found = result(source, translate)
    assert sorted([m[0] for m in PLACEHOLDER.finditer(source)]) == sorted(
        [m[0] for m in PLACEHOLDER.finditer(found)]
    )
