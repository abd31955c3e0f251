"""What chooses the best checkpoint, and what is said of scores before training."""

import pytest

from transformer.config import DataConfig
from transformer.evaluation.validation import ValidationScorer

SENTENCES = ["Der Hund schläft im Garten.", "Wir sehen das alte Haus, nicht wahr?"]


def scorer(references, language="de", best_by="auto", **data):
    pairs = [("", reference) for reference in references]
    return ValidationScorer(DataConfig(target=language, **data), best_by, pairs)


@pytest.mark.parametrize(
    "references, language, judge",
    [
        (SENTENCES, "de", "bleu"),
        (["Katze", "Hund", "rotes Haus", ""], "de", "chrf"),  # a glossary
        (["Anna Maria Müller"] * 9 + SENTENCES[:1], "de", "chrf"),  # names
        (["今天的天气很好。", "我们去公园。"], "zho_Hans", "bleu"),
        (["今天的天气很好。", "我们去公园。"], "xx", "chrf"),
        (["สวัสดีครับ"], "th", "bleu"),
        (["A b c d", "a b", ""], "en", "bleu"),
        ([], "", "loss"),  # a model of one side
    ],
)
def test_chrf_chooses_where_bleu_has_no_four_words_to_compare(references, language, judge):
    found = scorer(references, language)
    assert found.chosen_by == judge
    remarks = " ".join(found.remarks(list))
    assert ("chrF selects the best checkpoint" in remarks) == (judge == "chrf")
    expected = {"loss": {}, "bleu": {"bleu": 100}, "chrf": {"chrf": 100}}[judge]
    scores = found.scores(references)
    assert scores == pytest.approx(scores | expected)
    assert set(scores) == set(expected) | ({"bleu"} if references else set())


def test_what_was_chosen_is_kept_and_doubted_where_it_says_little():
    words = ["Katze", "Hund"]
    assert scorer(words, best_by="bleu").chosen_by == "bleu"
    [remark] = scorer(words, best_by="bleu").remarks(list)
    assert "chrF would be more reliable: 0 of 2 references have 4 words" in remark
    assert scorer(SENTENCES, best_by="chrf").scores(SENTENCES)["chrf"] == pytest.approx(100)
    for best_by in ("chrf", "loss", "accuracy"):
        assert not list(scorer(words, best_by=best_by).remarks(list))
    assert "'xx' is not a known" in next(scorer(SENTENCES, "xx").remarks(list))
    assert not list(scorer(SENTENCES, "xx", bleu_tokenizer="char").remarks(list))


def test_what_the_vocabulary_cannot_write_is_said_with_the_best_score_there_is():
    references = ["Es sind 5 m² und 10⁶ Euro.", *SENTENCES]
    [remark] = scorer(references).remarks(lambda texts: [text.replace("²", "2") for text in texts])
    assert "1 of 3 validation references cannot be written with the target vocabulary" in remark
    assert "'Es sind 5 m² und 10⁶ Euro.', which becomes 'Es sind 5 m2 und 10⁶ Euro.'" in remark
    assert "BLEU 84.4 and chrF 94.4" in remark
    assert not scorer(references).ceiling(lambda texts: [f" {text}  " for text in texts])
