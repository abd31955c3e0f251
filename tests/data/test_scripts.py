"""Text of several scripts through the vocabularies of a run: what a perfect translator would score."""

import itertools
import unicodedata

import pytest

from transformer.config import DataConfig
from transformer.data.vocabularies import load_tokenizers, make_tokenizers, save_tokenizers
from transformer.evaluation.scores import References, score
from transformer.evaluation.validation import ValidationScorer
from transformer.model.batch import UNK

SENTENCES = {
    "zho_Hans": (
        ["今天早上，", "老师说：“", "下雨的时候，", "（一九九〇年）", "你知道吗？", "昨天晚上８点，"],
        ["我们去公园散步。", "孩子们在花园里玩！", "她买了三斤苹果；很甜。", "火车晚了２０分钟……", "价格是￥５００，对吗？"],
    ),
    "jap": (
        ["今朝、", "先生は「はい」と言って、", "雨の日には、", "（１９９０年）", "ﾃﾚﾋﾞを見ながら、", "昨日の夜８時に"],
        ["公園を散歩しました。", "子供たちが庭で遊んでいます！", "りんごを３つ買った。", "電車が２０分遅れた……", "いくらですか？〜円です。"],
    ),
    "pes_Arab": (
        ["امروز صبح ", "آن‌ها ", "بچه‌ها در باغ ", "کتاب‌های قدیمی را ", "می‌دانم که ", "در سال ۱۳۷۰ "],
        ["به پارک می‌رویم.", "بازی می‌کنند؛ خوب است.", "نمی‌خواهم.", "خانه‌ی ما بزرگ است؟", "سیب‌ها را خریده‌ام!"],
    ),
    "th": (
        ["วันนี้ตอนเช้า", "ครูบอกว่า", "เวลาฝนตก", "ปี ๒๕๓๓ ", "คุณรู้ไหมว่า", "เมื่อคืนนี้"],
        ["เราไปเดินเล่นที่สวน", "เด็กๆ เล่นน้ำกัน", "เธอซื้อแอปเปิ้ลสามกิโล", "รถไฟมาสาย ๒๐ นาที", "ราคาเท่าไรครับ ทำไมแพงจัง"],
    ),
    "hin_Deva": (
        ["आज सुबह ", "शिक्षक ने कहा, ", "बारिश में ", "सन् १९९० में ", "क़लम और ", "ज़रा "],
        ["हम बाग़ में टहलने गए।", "बच्चे खेल रहे हैं!", "उसने तीन सेब ख़रीदे।", "गाड़ी २० मिनट देर से आई।", "यह कितने का है?"],
    ),
    "fr": (
        ["Ce matin, ", "Le maître a dit : « Où ? » et ", "À l’été 1990, ", "L’élève pressé, ", "Voilà : ", "Hé ! "],
        ["nous allâmes à la forêt.", "le garçon a reçu 3 m² d’étoffe…", "il était déjà là ; ça alors !", "ça coûte ½ € à Noël.", "l’œuvre a 10⁶ défauts."],
    ),
}  # fmt: skip


def sentences_of(language: str) -> list[str]:
    """Thirty sentences, the French ones in decomposed letters, as macOS writes them."""
    made = ["".join(parts) for parts in itertools.product(*SENTENCES[language])]
    return [unicodedata.normalize("NFD", text) for text in made] if language == "fr" else made


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("language", SENTENCES)
def test_the_target_comes_back_as_it_was_written(tmp_path, language, shared):
    sentences = sentences_of(language)
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(sentences), encoding="utf-8")
    data = DataConfig(
        dataset="", train_files=tuple(str(tmp_path / side) for side in ("source", "target")),
        target=language, tokenizer="char", vocab_size=300, shared_vocabulary=shared,
    )  # fmt: skip
    made = make_tokenizers(data)
    save_tokenizers(made, tmp_path / "tokenizer")
    assert load_tokenizers(tmp_path / "tokenizer", data) == made

    # What the target loses is nothing, so that a perfect translation has the best scores.
    written = made.target.reproduce(sentences)
    assert written == [" ".join(text.split(" ")).strip() for text in sentences]
    tokenizer = {"jap": "char"}.get(language, "auto")  # MeCab may not be there
    references = References(sentences, [sentences], language, tokenizer)
    values = [one.value for one in score(written, references)]
    assert values == pytest.approx([100, 100, 100, 0, 100])
    assert not ValidationScorer(data, "chrf", [*zip(sentences, sentences)]).ceiling(
        made.target.reproduce
    )

    # The source is read alike however it is encoded.
    rows = made.source.encode(sentences)
    assert not any(UNK in row for row in rows)
    assert made.source.encode([unicodedata.normalize("NFKC", text) for text in sentences]) == rows
    if shared:
        pieces = [side.pieces(range(side.vocab_size)) for side in made]
        assert pieces[0] == pieces[1]
