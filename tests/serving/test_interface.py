"""A real server, and the requests of its clients, of mistaken users and of attackers."""

import json
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.config import GenerateConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import word_attention
from transformer.decoding.confidence import mean_confidence, words_with_confidence
from transformer.decoding.fill_mask import classify, fill_mask
from transformer.decoding.generator import continuations, make_generator
from transformer.decoding.translator import Hypothesis, hypotheses, make_translator, translate
from transformer.documents.translation import unchanged
from transformer.serving.requests import Limits
from transformer.serving.service import ModelService

HOSTILE = int(os.environ.get("HOSTILE", 100))
SENTENCES = ["the cat sees a dog", "a dog sees the cat", "the garden .", "in the garden a cat"]


@pytest.fixture(scope="module")
def translator(models):
    return make_translator(*models["translator"])


def asking(text, **others):
    return {"q": text, "source": "en", "target": "de"} | others


def translated(text, truncated, **others):
    """The response with these translations, of which some are truncated."""
    counted = {"truncated": truncated} if truncated else {}
    return 200, {"translatedText": text} | others | counted


@pytest.fixture(scope="module")
def best(translator):
    """The best translation of each sentence."""
    return {text: one for text, [one] in zip(SENTENCES, hypotheses(translator, SENTENCES, 1))}


def counted(best, text):
    """The number of truncated translations of a text of sentences."""
    return sum(one.truncated * text.count(sentence) for sentence, one in best.items())


def test_translations_are_those_of_the_translator(client, translator, best):
    expected = translate(translator, SENTENCES)
    for text, translation in zip(SENTENCES, expected):
        found = client.post("/translate", asking(text))
        assert found == translated(translation, best[text].truncated)
    found = client.post("/translate", asking(SENTENCES))
    assert found == translated(expected, sum(one.truncated for one in best.values()))


def test_the_number_of_truncated_translations_is_in_the_response(client, translator):
    texts = [*SENTENCES, ""]
    found = [one for [one] in hypotheses(translator, texts, 1)]
    for some in (*([one] for one in zip(texts, found)), [*zip(texts, found)]):
        expected = translated([one.text for _, one in some], sum(one.truncated for _, one in some))
        for form in ("text", "html"):
            asked = asking([text for text, _ in some], format=form)
            assert client.post("/translate", asked) == expected
    assert {one.truncated for one in found} == {True, False}


def test_lines_are_translated_one_by_one_and_all_between_them_stays(client, translator, best):
    first, second = SENTENCES[:2]
    by_text = dict(zip(SENTENCES, translate(translator, SENTENCES)))
    texts = [
        "", "\n", " ", " \n\t\n", f"{first}\n", f"\n{first}\r\n\r\n", f"  {first} \n \t{second}",
        *(f"{first}{end}{second}{end}" for end in ("\n\n", "\r\n", "\r", *"\v\f\x85\u2028\u2029")),
        f"\u3000{first}\u00a0\u2028",
    ]  # fmt: skip
    expected = [text.replace(first, by_text[first]) for text in texts]
    expected = [text.replace(second, by_text[second]) for text in expected]
    for text, translation in zip(texts, expected):
        found = client.post("/translate", asking(text))
        assert found == translated(translation, counted(best, text))
    found = client.post("/translate", asking(texts[:5]))
    assert found == translated(expected[:5], counted(best, "".join(texts[:5])))
    _, answer = client.post("/translate", asking(f" {first}\n", alternatives=1))
    [found] = hypotheses(translator, [first], 2)
    assert answer["alternatives"] == [f" {found[1].text}\n"]


def test_alternatives_are_the_next_best_as_far_as_the_beam_reaches(client, translator):
    [found] = hypotheses(translator, SENTENCES[:1], 4)
    texts = [one.text for one in found]
    for wanted, expected in ((0, None), (2, texts[1:3]), ("2", texts[1:3]), (99, texts[1:])):
        _, answer = client.post("/translate", asking(SENTENCES[0], alternatives=wanted))
        assert answer["translatedText"] == texts[0] and answer.get("alternatives") == expected
    _, answer = client.post("/translate", asking(SENTENCES[:2], alternatives=1))
    assert len(answer["alternatives"]) == 2 and answer["alternatives"][0] == texts[1:2]


def test_a_document_is_translated_sentence_by_sentence_and_its_markup_stays(client, translator):
    page = f"<p title='cat'>{SENTENCES[0]}.  <br></p>\n<p>{SENTENCES[1]}</p><script>a < b</script>"
    texts = [f"{SENTENCES[0]}.", SENTENCES[1]]
    first, second = translate(translator, texts)
    expected = page.replace(texts[0], first).replace(texts[1], second)
    count = sum(one.truncated for [one] in hypotheses(translator, texts, 1))
    assert client.post("/translate", asking(page, format="html")) == translated(expected, count)
    found = client.post("/translate", asking([page, "7"], format="html", alternatives=1))
    assert found == translated([expected, "7"], count, alternatives=[[], []])
    _, answer = client.post("/translate", asking(f"<b>{SENTENCES[0]}</b>", format="html"))
    assert re.fullmatch("<b>[^<>]+</b>", answer["translatedText"])
    _, answer = client.post(
        "/translate", asking(f"{first}\n  {SENTENCES[1]}\n", format="paragraphs")
    )
    assert answer["translatedText"].endswith(f"\n  {second}\n")


def multipart(**fields):
    """A form with a file, as browsers send it."""
    text = ""
    for name, value in fields.items():
        file = f'; filename="{value[0]}"' if isinstance(value, tuple) else ""
        content = value[1] if isinstance(value, tuple) else value
        text += f'--XyZ\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{content}\r\n'
    return f"{text}--XyZ--\r\n".encode(), {"Content-Type": "multipart/form-data; boundary=XyZ"}


def test_a_file_is_translated_and_downloaded(client, translator, monkeypatch):
    [[best]] = hypotheses(translator, SENTENCES[:1], 1)
    cues = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{}\r\n\r\n" * 2
    file = ("../x y.en.srt", cues.format(SENTENCES[0], SENTENCES[0]))
    for source in ("en", "auto"):
        sent = multipart(file=file, source=source, target="de", api_key="")
        status, _, body = client.raw("POST", "/translate_file", *sent)
        answer = json.loads(body)
        assert status == 200 and answer.get("truncated", 0) == 2 * best.truncated
        url = rf"http://127\.0\.0\.1:{client.port}(/.+_de\.srt)"
        path = re.fullmatch(url, answer["translatedFileUrl"])[1]
        status, headers, content = client.raw("GET", path)
        assert (status, headers["Content-Disposition"]) == (200, "attachment")
        assert content.decode() == cues.format(best.text, best.text)
    for name, run, said in (
        ("a.docx", "translator", "no known format"),
        ("a.po", "translator", "line 1 is no line of a .po file"),
        ("a.srt", "language model", "'run' must be one of: translator"),
    ):
        sent = multipart(file=(name, file[1]), source="en", target="de", run=run)
        status, _, body = client.raw("POST", "/translate_file", *sent)
        assert status == 400 and said in json.loads(body)["error"]
    body, headers = multipart(file=("a.txt", "a\n?"), source="en", target="de")
    _, _, body = client.raw("POST", "/translate_file", body.replace(b"?", b"\xff"), headers)
    assert "line 2 of 'a.txt' is not UTF-8 (invalid start byte)" in json.loads(body)["error"]
    assert client.raw("GET", "/download_file/a.srt")[0] == 404
    copies = lambda _, texts, __: [*map(unchanged, texts)]  # noqa: E731
    monkeypatch.setattr("transformer.serving.service.aligned_translations", copies)
    sent = multipart(file=file, source="en", target="de")
    assert [*json.loads(client.raw("POST", "/translate_file", *sent)[2])] == ["translatedFileUrl"]


def test_a_form_is_as_good_as_json(client, translator, best):
    expected = translate(translator, SENTENCES[:2])
    one, two = (text.replace(" ", "+") for text in SENTENCES[:2])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    others = "source=en&target=de&api_key=none&format="
    for headers in (form, {}, {"Content-Type": "text/plain"}):
        for body, translation, count in [
            (f"q={one}&{others}", expected[0], 1),
            (f"q={one}&q={two}&{others}", expected, 2),
            (f"q[]={one}&{others}", expected[:1], 1),
            (json.dumps(asking(SENTENCES[:2])), expected, 2),
        ]:
            status, _, answer = client.raw("POST", "/translate", body, headers)
            truncated = counted(best, "".join(SENTENCES[:count]))
            assert (status, json.loads(answer)) == translated(translation, truncated)
    unset = asking(SENTENCES[0], format=None, alternatives=None)
    assert client.post("/translate", unset) == translated(expected[0], counted(best, SENTENCES[0]))


def test_auto_is_the_only_language_there_is_and_claims_no_more(client):
    _, answer = client.post("/translate", asking(SENTENCES[0], source="auto"))
    assert answer["detectedLanguage"] == {"language": "en", "confidence": 0}
    assert client.post("/detect", {"q": "a"}) == (200, [{"confidence": 0, "language": "en"}])


def test_the_language_of_a_text_is_detected_as_far_as_vocabularies_tell(serving, services):
    translator, *others = services

    def speaking(language, text):
        pieces = train_tokenizer([text] * 3, "word", 13)
        data = replace(translator.config.data, source=language)
        config = replace(translator.config, data=data)
        vocabularies = translator.tokenizers._replace(source=pieces)
        return replace(translator, name=language, config=config, tokenizers=vocabularies)

    french = speaking("fr", "le chat voit un chien dans le jardin . un chien voit le chat .")
    italian = speaking("it", "the cat sees a dog in the garden . a dog sees the cat .")  # the same
    with serving([translator, french, *others]) as client:
        _, found = client.post("/detect", {"q": "un chat dans le jardin"})
        assert [one["language"] for one in found] == ["fr", "en"] and found[0]["confidence"] > 90
        for text, language in (("the cat\n", "en"), ("le chat", "fr"), (["un", "chien"], "fr")):
            _, answer = client.post("/translate", asking(text, source="auto"))
            detected = answer["detectedLanguage"]
            detected = detected[0] if isinstance(text, list) else detected
            assert detected["language"] == language and detected["confidence"] > 90
        xliff = "<xliff><file{}><trans-unit><source>a dog</source></trans-unit></file></xliff>"
        for form, document in (
            ("html", f"<style>{'the cat sees a dog ' * 3}</style><p>le chat</p>"),
            ("xliff", xliff.format(" source-language='fr-FR'")),
        ):
            asked = asking(document, source="auto", format=form)
            assert client.post("/translate", asked)[1]["detectedLanguage"]["language"][:2] == "fr"
        status, answer = client.post("/translate", asked | {"q": xliff.format("")})
        assert status == 400 and "does not name its source language" in answer["error"]
    with serving([translator, italian]) as client:
        status, answer = client.post("/translate", asking("the cat", source="auto"))
        assert (
            status == 400 and "'source' cannot be detected: set it to en or it" in answer["error"]
        )
    with serving(others) as client:
        assert client.post("/detect", {"q": "the cat"}) == (200, [])


def test_languages_runs_and_health(client, services):
    assert client.get("/health") == (200, {"status": "ok"})
    english = {"code": "en", "name": "English", "targets": ["de"]}
    german = {"code": "de", "name": "German", "targets": []}
    assert client.get("/languages") == (200, [english, german])
    _, runs = client.get("/runs")
    assert [(run["name"], run["kind"]) for run in runs] == [
        (run.name, run.kind) for run in services
    ]


def test_any_spelling_of_a_language_finds_its_run(client):
    asked = asking(SENTENCES[0])
    answer = client.post("/translate", asked)
    for spelled in (
        {"source": "eng", "target": "deu_Latn"},
        {"source": "en-GB", "target": "de-AT"},
    ):
        assert client.post("/translate", asked | spelled) == answer
    for other in ({"target": "fr"}, {"source": "xx"}, {"target": 5}, {"target": ""}):
        status, said = client.post("/translate", asked | other)
        assert status == 400 and "en to de" in said["error"]


def test_the_page_is_told_all_of_a_translation(client, translator):
    wanted = {"nbest": 3, "attention": True, "confidence": True}
    asked = {"run": "translator", "text": SENTENCES[0]} | wanted
    _, found = client.post("/answer", asked)
    [answer] = found["answers"]
    [expected] = hypotheses(translator, SENTENCES[:1], 3)
    assert [one["text"] for one in answer["nbest"]] == [one.text for one in expected]
    assert answer["nbest"][1]["score"] == pytest.approx(expected[1].score, abs=1e-4)
    [[part]] = word_attention(translator, SENTENCES[:1], [expected[0].tokens])
    assert answer["attention"][0]["target"] == part.target == expected[0].text.split()
    assert answer["attention"][0]["source"] == SENTENCES[0].split()
    assert answer["attention"][0]["weights"] == part.weights.round(3).tolist()
    [words] = words_with_confidence(translator, SENTENCES[:1], [expected[0].tokens])
    assert answer["words"] == [[word, round(chance, 4)] for word, chance in words]
    assert answer["confidence"] == pytest.approx(mean_confidence(words), abs=1e-4)


def test_the_other_kinds_answer_as_their_functions_do(client, models):
    config, *rest = models["language model"]
    wanted = GenerateConfig(samples=2, max_tokens=5, seed=3)
    [expected] = continuations(make_generator(config, wanted, *rest), ["the cat"])
    asked = {"run": "language model", "text": "the cat", "samples": 2, "max_tokens": 5, "seed": 3}
    [answer] = client.post("/answer", asked)[1]["answers"]
    assert [one["text"] for one in answer["continuations"]] == [one.text for one in expected]

    [[blank]] = fill_mask(*models["masked model"], ["the __ sees"], 2)
    asked = {"run": "masked model", "text": "the __ sees", "words": 2}
    [answer] = client.post("/answer", asked)[1]["answers"]
    assert [one["word"] for one in answer["blanks"][0]] == [one.word for one in blank]

    [guesses] = classify(*models["classifier"], ["the cat"], 5)
    [answer] = client.post("/answer", {"run": "classifier", "text": "the cat"})[1]["answers"]
    assert [one["word"] for one in answer["classes"]] == [one.word for one in guesses]


def test_samples_of_a_text_do_not_depend_on_its_batch(client):
    asked = {"run": "language model", "text": "the cat", "max_tokens": 6}
    alone = client.post("/answer", asked)
    with ThreadPoolExecutor(8) as pool:
        others = [asked | {"text": text} for text in ["a dog", "the cat", "in the garden"] * 4]
        found = [*pool.map(lambda one: client.post("/answer", one), others)]
    assert all(one == alone for one, of in zip(found, others) if of["text"] == "the cat")


def test_many_at_once_get_each_their_own_answer(client, translator):
    words = ["the", "cat", "sees", "a", "dog", "in", "garden"]
    texts = [f"{a} {b} {c}" for a in words for b in words for c in words[:2]]
    expected = [one for [one] in hypotheses(translator, texts, 1)]
    with ThreadPoolExecutor(16) as pool:
        found = [*pool.map(lambda text: client.post("/translate", asking(text)), texts)]
    assert found == [translated(one.text, one.truncated) for one in expected]


def test_target_chooses_the_tag_of_every_line(serving, models, tagged, random_params, monkeypatch):
    config, _, (pieces, _) = models["translator"]
    source = tagged(pieces, ">>deu<<", ">>fra<<")
    size = source.vocab_size
    config = replace(
        config, model=replace(config.model, source_vocab_size=size, target_vocab_size=size)
    )
    run = ModelService(
        "many", config, "last", random_params(config.model), Tokenizers(source, source)
    )
    # What the translator is given comes back.
    echo = lambda _, texts, count: [[Hypothesis(text, 0.0, 0.0, ())] for text in texts]  # noqa: E731
    monkeypatch.setattr("transformer.serving.service.hypotheses", echo)
    with serving([run]) as client:
        [english, *others] = client.get("/languages")[1]
        assert english["targets"] == ["de", "fr"]
        assert [(one["code"], one["targets"]) for one in others] == [("de", []), ("fr", [])]
        for asked, given in [
            ("a dog\n\nthe cat", ">>fra<<a dog\n\n>>fra<<the cat"),
            (">>fra<< a dog\nthe cat", ">>fra<< a dog\n>>fra<<the cat"),
            ("\n >>fra<<a\n>>pt<< b", "\n >>fra<<a\n>>fra<<>>pt<< b"),
            (["a", ">>Good day<< b", ""], [">>fra<<a", ">>fra<<>>Good day<< b", ""]),
        ]:
            for target in ("fra", "fr"):
                _, answer = client.post("/translate", asking(asked, target=target))
                assert answer == {"translatedText": given}
        text = "\n>>deu<<a dog\n\nthe\n>>fra<<cat\nsees"
        answers = client.post("/answer", {"text": text})[1]["answers"]
        given = ["", ">>deu<<a dog", "", ">>deu<<the", ">>fra<<cat", ">>fra<<sees"]
        assert [one["translation"] for one in answers] == given
        for path, values, sentence in [
            ("/translate", asking("a dog", target="pt"), "en to de, en to fr"),
            ("/translate", asking(">>fra<< a", target="deu"), "asks for >>deu<<, but a text"),
            ("/translate", asking("a\n>>fra<< a", target="deu"), "begins with >>fra<<"),
            ("/translate", asking("a b " * 10, target="deu"), "a sentence of 21 tokens"),
            (
                "/answer",
                {"text": "a dog"},
                "begin the text with a target tag: its tags are >>deu<<",
            ),
            ("/answer", {"text": ">>ita<< a dog"}, ">>ita<< is not a target tag of this model"),
            ("/answer", {"text": "a\n>>deu<< a"}, "begin the text with a target tag"),
        ]:
            status, answer = client.post(path, values)
            assert status == 400 and sentence in answer["error"]


LONG = "the cat sees a dog " * 5
JSON = {"Content-Type": "application/json"}
MISTAKES = [
    ("/translate", {}, 400, "'source' and 'target' must be one of: en to de"),
    ("/translate", asking("a", target="fr"), 400, "must be one of: en to de"),
    ("/translate", asking("a", target=["de"]), 400, "must be one of: en to de"),
    ("/translate", asking("a", source="auto", target="en"), 400, "must be one of: en to de"),
    ("/translate", {"source": "en", "target": "de"}, 400, "must be a string"),
    ("/translate", asking(None), 400, "must be a string"),
    ("/translate", asking(7), 400, "must be a string"),
    ("/translate", asking([]), 400, "must be a string"),
    ("/translate", asking(["a", 7]), 400, "must be a string"),
    (
        "/translate",
        asking("a", format="rtf"),
        400,
        "'format' must be one of: text, paragraphs, html",
    ),
    ("/translate", asking("<a>", format="xliff"), 400, "the document is not XML: no element"),
    ("/translate", asking(f"<p>{LONG}</p>", format="html"), 400, "a sentence of 25 tokens"),
    ("/translate_file", asking("a"), 400, "'file' must be a file"),
    ("/translate", asking("a", alternatives=-1), 400, "'alternatives' must be an integer"),
    ("/translate", asking("a", alternatives=1.5), 400, "'alternatives' must be an integer"),
    ("/translate", asking("a", alternatives=True), 400, "'alternatives' must be an integer"),
    ("/translate", asking("a" * 201), 413, "at most 200 characters"),
    ("/translate", asking(["a" * 100] * 3), 413, "at most 200 characters"),
    ("/translate", asking("a\n" * 7), 413, "at most 6 lines"),
    ("/translate", asking([""] * 7), 413, "at most 6 lines"),
    (
        "/translate",
        asking(LONG),
        400,
        "a sentence of 25 tokens is too long: at most 20 are allowed ('the cat sees a dog the",
    ),
    ("/translate", asking("\ud83d"), 400, "half a surrogate pair"),
    ("/answer", {"text": "a"}, 400, "'run' must be one of: translator, language model"),
    ("/answer", {"run": ["translator"], "text": "a"}, 400, "'run' must be one of"),
    ("/answer", {"run": "translator"}, 400, "must be a string"),
    ("/answer", {"run": "translator", "text": "a", "nbest": 5}, 400, "nbest must be at most 4"),
    ("/answer", {"run": "translator", "text": "a", "nbest": "4"}, 400, "must be of type int"),
    ("/answer", {"run": "translator", "text": "a", "words": 4}, 400, "unknown option 'words'"),
    ("/answer", {"run": "classifier", "text": "a", "words": 0}, 400, "words (0)"),
    ("/answer", {"run": "masked model", "text": LONG}, 400, "a text of 25 tokens is too long"),
    (
        "/answer",
        {"run": "masked model", "text": "__" + " a__" * 12},
        400,
        "too long: at most 20 are allowed",
    ),
    ("/answer", {"run": "classifier", "text": "a", "words": "b" * 150}, 400, "must be of type int"),
    ("/answer", {"run": "language model", "text": "a", "samples": 99}, 400, "at most 20"),
    ("/answer", {"run": "language model", "text": "a", "max_tokens": 501}, 400, "at most 500"),
    ("/answer", {"run": "language model", "text": "a", "temperature": -1}, 400, "temperature"),
    ("/answer", {"run": "language model", "text": "a", "seed": 1e99}, 400, "seed"),
]


@pytest.mark.parametrize("path, values, status, sentence", MISTAKES)
def test_a_mistake_gets_one_sentence(client, path, values, status, sentence):
    found, answer = client.post(path, values)
    assert (found, [*answer]) == (status, ["error"]) and sentence in answer["error"]


RAW = [
    ("POST", "/translate", b"{", JSON, 400, "is not JSON"),
    ("POST", "/translate", b"", JSON, 400, "is not JSON"),
    ("POST", "/translate", b"[" * 50_000, JSON, 413, "at most 12,400 bytes"),
    ("POST", "/translate", b"[" * 5_000, JSON, 400, "nested too deeply"),
    ("POST", "/translate", b'"a"', JSON, 400, "not a JSON object"),
    ("POST", "/translate", b'{"q": NaN}', JSON, 400, "NaN"),
    ("POST", "/translate", b"\xff\xfe", JSON, 400, "is not UTF-8"),
    ("POST", "/translate", b"q=%ff&source=en&target=de", {}, 400, "is not UTF-8"),
    ("POST", "/translate", b"a" * 20_000_000, {"Connection": "close"}, 413, "at most 12,400 bytes"),
    ("POST", "/translate", b"x", {"Content-Type": "multipart/form-data"}, 400, "has no parts"),
    ("POST", "/translate", b"x", {"Content-Type": "text/xml"}, 415, "send application/json"),
    ("POST", "/detect", b"{}", {}, 400, "must be a string"),
    ("GET", "/detect", None, {}, 405, "Method Not Allowed"),
    ("GET", "/translate", None, {}, 405, "Method Not Allowed"),
    ("PUT", "/answer", b"{}", JSON, 405, "Method Not Allowed"),
    ("GET", "/favicon.ico", None, {}, 404, "Not Found"),
    ("GET", "/served.py", None, {}, 404, "Not Found"),
    ("GET", "/../served.py", None, {}, 404, ""),
    ("GET", "/%2e%2e/served.py", None, {}, 404, ""),
    ("GET", "/..%2fserved.py", None, {}, 404, ""),
    ("GET", "//etc/passwd", None, {}, 404, ""),
    ("GET", "/page/page.html", None, {}, 404, ""),
]


@pytest.mark.parametrize("method, path, body, headers, status, sentence", RAW)
def test_whatever_comes_gets_a_clear_answer(client, method, path, body, headers, status, sentence):
    found, _, answer = client.raw(method, path, body, headers)
    assert found == status and sentence in json.loads(answer)["error"]


def test_only_the_files_of_the_page_are_reachable_and_they_run_no_others_code(client):
    for path in ("/", "/page.html", "/page.js", "/attention.js", "/style.css"):
        status, headers, body = client.raw("GET", path)
        assert status == 200 and body
        assert "default-src 'self'" in headers["Content-Security-Policy"]


def test_a_page_elsewhere_cannot_ask_by_a_name_of_its_own(client):
    status, answer = client.get("/health", Host="evil.example")
    assert status == 400 and "'evil.example': allow it with --hosts" in answer["error"]
    for name in ("localhost:5000", "127.0.0.1", "[::1]:5000"):
        assert client.raw("GET", "/health", headers={"Host": name})[0] == 200, name


def test_other_hosts_and_pages_elsewhere_may_ask_where_they_are_named(serving, services, client):
    page, ask = {"Origin": "https://a.example"}, {"Access-Control-Request-Method": "POST"}
    wants = page | ask | {"Access-Control-Request-Headers": "content-type"}
    hosts, origins = ["localhost", "127.0.0.1", "*.b.example"], ["https://a.example"]
    with serving(services[:1], hosts=hosts, origins=origins) as open_one:
        assert open_one.get("/health", Host="x.b.example")[0] == 200
        for headers, method in ((page, "GET"), (wants, "OPTIONS")):
            status, found, _ = open_one.raw(method, "/languages", headers=headers)
            assert status == 200 and found["Access-Control-Allow-Origin"] == "https://a.example"
        status, found, body = open_one.raw(
            "OPTIONS", "/translate", headers=wants | {"Origin": "https://b.example"}
        )
        assert status == 400 and "--origins" in json.loads(body)["error"]
        status, found, _ = open_one.raw("POST", "/translate", "{", page)  # errors can be read too
        assert status == 400 and found["Access-Control-Allow-Origin"] == "https://a.example"
    status, found, body = client.raw("OPTIONS", "/translate", headers=wants)
    assert status == 405 and "Access-Control-Allow-Origin" not in found and json.loads(body)


@pytest.mark.parametrize("sent", [b"x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\n\n"])
def test_what_is_not_http_gets_json_too(client, sent):
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and "Invalid HTTP" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost:/../../../../../../../../etc/hostname?",
        "localhost:@x/../server.py?",
        "localhost/../server.py#",
        "127.0.0.1:80@127.0.0.1/../served.py?",
    ],
)
def test_no_name_of_a_host_leads_to_another_file(client, host):
    page = client.raw("GET", "/page.js")[2]
    status, _, body = client.raw("GET", "/page.js", headers={"Host": host})
    assert status == 400 or body == page


def test_idle_connections_keep_nobody_out(serving, services):
    with serving(services[:1], Limits(connections=3, seconds=3)) as client:
        address = ("127.0.0.1", client.port)
        silent = [socket.create_connection(address) for _ in range(3)]
        for one in silent[1:]:
            one.sendall(b"GET /health HTTP/1.1\r\nHo")
        time.sleep(0.1)
        status, _, body = client.raw("GET", "/health")
        assert status == 503 and "more than 3 connections" in json.loads(body)["error"]
        deadline = time.monotonic() + 30
        while client.raw("GET", "/health")[0] == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert client.get("/health")[0] == 200
        for one in silent:
            assert one.recv(1) == b""  # closed
            one.close()


def test_requests_of_disconnected_clients_are_dropped(serving, services, monkeypatch):
    answer, asked, may_answer = ModelService.answer, [], threading.Event()

    def slow(service, texts, options):
        asked.append(len(texts))
        assert may_answer.wait(60)
        return answer(service, texts, options)

    monkeypatch.setattr(ModelService, "answer", slow)
    body = json.dumps(asking("\n".join(SENTENCES))).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with serving(services[:1]) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/translate", asking("a"))
        while not asked:
            time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", client.port)) as gone:
            gone.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            time.sleep(0.2)
        time.sleep(1.5)  # the server looks for such clients twice a second
        may_answer.set()
        assert first.result()[0] == 200
        assert client.post("/translate", asking("a"))[0] == 200
        assert asked == [1, 1]


def test_a_full_queue_and_a_slow_request_are_refused(serving, services):
    with serving(services[:1], Limits(waiting=2)) as client:
        status, answer = client.post("/translate", asking("a\nb\nc"))
        assert status == 503 and "try again" in answer["error"]
        assert client.post("/translate", asking("a\nb"))[0] == 200
    with serving(services[:1], Limits(seconds=1)) as client:
        status, _, answer = client.raw("POST", "/translate", slow_body(), JSON)
        assert status == 408 and "1 s" in json.loads(answer)["error"]
        assert client.post("/translate", asking("a"))[0] == 200


def slow_body():
    yield b'{"q": "a", '
    time.sleep(2)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=5,
)
names = st.sampled_from(["q", "text", "run", "source", "target", "nbest", "words", "seed", "top_p"])
likely = st.sampled_from(["en", "de", "auto", "translator", "language model", "the __ cat", 1, 0])
requests = st.dictionaries(names, likely | anything, max_size=6)
bodies = st.binary(max_size=300) | requests.map(lambda values: json.dumps(values).encode())
ASKED = {
    "/translate": asking("the cat sees a dog"),
    "/answer": {"run": "masked model", "text": "the __"},
}


@settings(max_examples=HOSTILE)
@given(
    st.sampled_from(sorted(ASKED)),
    bodies,
    st.sampled_from(["application/json", "application/x-www-form-urlencoded", "text/plain", ""]),
)
def test_nothing_that_is_sent_makes_it_fail(client, path, body, kind):
    status, _, answer = client.raw("POST", path, body, {"Content-Type": kind})
    assert status in (200, 400, 413, 415)
    assert (status == 200) != ("error" in json.loads(answer))


def test_it_still_answers_after_all_that(client, best):
    one = best[SENTENCES[0]]
    found = client.post("/translate", ASKED["/translate"])
    assert found == translated(one.text, one.truncated)
