"""The beam search that is shown is the one that translates."""

import pytest

from transformer.config import Config, DecodeConfig
from transformer.data.tokenizer import train_tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.translator import hypotheses, make_translator
from transformer.model.batch import EOS
from transformer.viewing.beam import beam_steps


@pytest.fixture(scope="module")
def translator(small_model, random_params):
    tokenizer = train_tokenizer(["the cat sees a dog in the garden"] * 3, "word", 12)
    size = tokenizer.vocab_size
    model = small_model(source_vocab_size=size, target_vocab_size=size)
    decode = DecodeConfig(beam_size=3, max_extra_length=20)
    config = Config(model=model, decode=decode)
    return make_translator(config, random_params(model), Tokenizers(tokenizer, tokenizer))


def test_each_step_goes_on_from_the_one_before_and_leads_to_the_translation(translator):
    [[found]] = hypotheses(translator, ["the cat sees"])
    steps = beam_steps(translator, "the cat sees")
    before = {()}
    for length, kept in enumerate(steps, start=1):
        assert all(len(tokens) == length and tokens[:-1] in before for tokens, _ in kept)
        log_probs = [log_prob for _, log_prob in kept]
        assert log_probs == sorted(log_probs, reverse=True)
        before = {tokens for tokens, _ in kept}
    assert max(map(len, steps)) == 3
    for length, kept in enumerate(steps[: len(found.tokens)], start=1):
        beginning = found.tokens[:length]
        assert beginning[-1] == EOS or beginning in {tokens for tokens, _ in kept}
