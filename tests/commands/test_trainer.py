"""What train.py does around updates."""

from transformer.commands.trainer import unusual_search
from transformer.config import DecodeConfig


def test_scores_depend_on_the_settings_that_change_translations_alone():
    derived = {"length_ratio": 2.0, "longest_target": 90, "copy_without_letters": True}
    same = DecodeConfig(beam_size=9, batch_sentences=1, dtype="bfloat16", **derived)
    assert unusual_search(DecodeConfig()) == unusual_search(same) == []
    other = DecodeConfig(no_repeat_ngram=3, max_length=8)
    assert unusual_search(other) == ["max_length=8", "no_repeat_ngram=3"]
