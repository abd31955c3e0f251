"""The vocabularies of a run: shared, separate, of one side, or of text and classes."""

import itertools
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import sentencepiece
from sentences import SENTENCES

from transformer.config import DataConfig
from transformer.data.tokenizer import UNK, save_tokenizer, train_tokenizer
from transformer.data.vocabularies import (
    Labels,
    Tokenizers,
    load_tokenizers,
    make_labels,
    make_tokenizers,
    same_models,
    save_tokenizers,
)
from transformer.errors import UserError
from transformer.model.batch import PAD


def test_a_shared_vocabulary_is_one_file_and_one_object(tmp_path, bytewise):
    other = train_tokenizer(SENTENCES, "bpe", 80)
    for tokenizers in (Tokenizers(bytewise, other), Tokenizers(bytewise, bytewise)):
        save_tokenizers(tokenizers, tmp_path / "tokenizer")
        loaded = load_tokenizers(tmp_path / "tokenizer", DataConfig())
        assert loaded == tokenizers
        shared = tokenizers.source is tokenizers.target
        assert (loaded.source is loaded.target) == shared
        assert (tmp_path / "tokenizer" / "target.model").exists() != shared


def test_a_model_of_the_users_own_is_known_again_wherever_it_lies(tmp_path, bytewise):
    other = train_tokenizer(SENTENCES, "bpe", 80)
    paths = {name: str(tmp_path / f"{name}.model") for name in ("moved", "other", "gone")}
    save_tokenizer(bytewise, Path(paths["moved"]))
    save_tokenizer(other, Path(paths["other"]))
    run = Tokenizers(bytewise, other)

    def same(source, target, **settings):
        data = DataConfig(source_tokenizer=source, target_tokenizer=target, **settings)
        return {name.removeprefix("data.") for name in same_models(data, run)}

    assert same(paths["moved"], paths["other"]) == {"source_tokenizer", "target_tokenizer"}
    assert same(paths["other"], paths["other"]) == {"target_tokenizer"}
    assert same(paths["gone"], "") == set()
    assert same(paths["moved"], "", lowercase=True) == set()


def test_the_vocabulary_of_another_run_is_refused(tmp_path, bytewise):
    other = train_tokenizer(SENTENCES, "bpe", 80)
    save_tokenizers(Tokenizers(bytewise, bytewise), tmp_path)
    digests = [Tokenizers(*both).identity[2] for both in ((bytewise, bytewise), (bytewise, other))]
    load_tokenizers(tmp_path, DataConfig(vocabulary=digests[0]))
    with pytest.raises(UserError, match="another vocabulary"):
        load_tokenizers(tmp_path, DataConfig(vocabulary=digests[1]))
    with pytest.raises(UserError, match="another vocabulary"):
        load_tokenizers(tmp_path, DataConfig(vocabulary=digests[0], lowercase=True))


@pytest.fixture
def corpus(tmp_path) -> DataConfig:
    """A corpus whose target is its source in capitals."""
    for name, lines in (("s", SENTENCES), ("t", [s.upper() for s in SENTENCES])):
        (tmp_path / name).write_text("\n".join(lines))
    files = (str(tmp_path / "s"), str(tmp_path / "t"))
    return DataConfig(dataset="", train_files=files, tokenizer="char", vocab_size=80)


def test_a_shared_vocabulary_is_trained_on_both_sides(corpus):
    shared = make_tokenizers(corpus)
    plain = make_tokenizers(DataConfig(**{**vars(corpus), "normalisation": "identity"}))
    assert plain.source is plain.target == shared.target
    assert shared.source.encode(SENTENCES) == shared.target.encode(SENTENCES)
    for row in shared.source.encode([SENTENCES[0], SENTENCES[0].upper()]):
        assert UNK not in row


def test_separate_vocabularies_are_trained_on_their_own_side(corpus):
    apart = make_tokenizers(DataConfig(**{**vars(corpus), "shared_vocabulary": False}))
    assert UNK not in apart.source.encode(SENTENCES[:1])[0]
    assert UNK in apart.target.encode(SENTENCES[:1])[0]
    assert UNK not in apart.target.encode([SENTENCES[0].upper()])[0]


def test_two_vocabularies_have_sizes_of_their_own(corpus, tmp_path):
    """A size that is too small for one side is named; one that is too large is printed."""
    (tmp_path / "s").write_text("\n".join(["ab", "ba", "aab"] * 10))
    (tmp_path / "t").write_text("\n".join(SENTENCES))
    two = {**vars(corpus), "shared_vocabulary": False, "tokenizer": "unigram", "vocab_size": 30}
    with pytest.raises(UserError, match=r"data\.target_vocab_size \(30\)") as caught:
        make_tokenizers(DataConfig(**two))
    target, told = int(str(caught.value).split()[-1]), []
    made = make_tokenizers(DataConfig(**two | {"target_vocab_size": target}), told.append)
    source = made.source.vocab_size
    assert source < 30 < target == made.target.vocab_size
    assert told == [
        f"vocabulary of {corpus.source}: {source} tokens, the most that this text allows; "
        "data.source_vocab_size is 30"
    ]


def test_pairs_that_one_word_makes_too_long_train_no_vocabulary(corpus, tmp_path):
    lines = list(SENTENCES)
    lines[2:4] = "#" * 81, " ".join("#" * 80 for _ in range(9))  # at most 5 times 16 characters
    (tmp_path / "s").write_text("\n".join(lines))
    told = []
    limited = DataConfig(**{**vars(corpus), "max_length": 5})
    make_tokenizers(limited, told.append)
    [line] = told
    assert line.startswith("pairs with a word of more than 80 characters, ")
    lines[3] = ""
    (tmp_path / "s").write_text("\n".join(lines))
    tokenizer = make_tokenizers(limited).source
    assert UNK in tokenizer.encode(["#"])[0]
    (tmp_path / "s").write_text("\n".join(["#" * 81] * len(lines)))
    with pytest.raises(UserError, match="no text to train"):
        make_tokenizers(limited)


def test_own_tokenizers_are_loaded(corpus, tmp_path, bytewise):
    paths = [str(tmp_path / name) for name in ("a.model", "b.model")]
    other = train_tokenizer(SENTENCES, "bpe", 80)
    save_tokenizer(bytewise, paths[0])
    save_tokenizer(other, paths[1])

    def made(source, target, shared):
        own = {"source_tokenizer": source, "target_tokenizer": target}
        return make_tokenizers(DataConfig(**{**vars(corpus), **own, "shared_vocabulary": shared}))

    assert made(paths[0], paths[1], False) == (bytewise, other)
    assert made(paths[0], "", True) == made("", paths[0], True) == (bytewise, bytewise)
    assert made(paths[0], paths[0], True) == (bytewise, bytewise)
    with pytest.raises(UserError, match=r"data\.shared_vocabulary"):
        made(paths[0], paths[1], True)


@pytest.mark.parametrize(
    ("kind", "sampling", "message"),
    [
        ("char", 0.2, "needs a unigram or BPE model"),
        ("bpe", 1, "must be below 1 with the BPE model"),
        ("bpe", 0.2, ""),
        ("unigram", 1, ""),
    ],
)
def test_sampling_needs_a_model_with_several_segmentations(
    corpus, tmp_path, kind, sampling, message
):
    path = str(tmp_path / "own.model")
    save_tokenizer(train_tokenizer(SENTENCES, kind, 60), path)
    data = replace(corpus, source_tokenizer=path, sampling=sampling, tokenizer="word")
    with pytest.raises(UserError, match=message) if message else nullcontext():
        make_tokenizers(data)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_model_with_blanks_behind_words_is_refused(corpus, tmp_path, kind):
    """google/sentencepiece#627: translations would end with a blank, and no word be found."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_prefix=str(tmp_path / "own"),
        model_type=kind,
        vocab_size=50,
        treat_whitespace_as_suffix=True,
        minloglevel=2,
    )
    own = {"source_tokenizer": str(tmp_path / "own.model")}
    with pytest.raises(UserError, match="own.model marks where words end"):
        make_tokenizers(DataConfig(**{**vars(corpus), **own}))


@pytest.fixture
def labelled(tmp_path):
    """A function from the classes of sentences to a corpus that has them."""

    def build(*classes):
        table = tmp_path / "labelled.tsv"
        rows = zip(SENTENCES, classes * len(SENTENCES))
        table.write_text("".join(f"{sentence}\t{label}\n" for sentence, label in rows))
        return DataConfig(
            dataset="",
            train_files=(str(table),),
            target="",
            label_column=2,
            tokenizer="char",
            vocab_size=80,
        )

    return build


def test_of_one_side_there_is_one_vocabulary(corpus):
    files = {"train_files": corpus.train_files[1:], "source": ""}
    tokenizers = make_tokenizers(DataConfig(**{**vars(corpus), **files}))
    assert tokenizers.source is tokenizers.target
    assert UNK not in tokenizers.target.encode([SENTENCES[0].upper()])[0]
    assert UNK in tokenizers.target.encode(SENTENCES[:1])[0]


def test_classes_are_those_of_the_training_data_in_alphabetical_order(labelled):
    data = labelled("wild", "tame", "wild", "no animal")
    text, labels = make_tokenizers(data)
    assert labels == make_labels(data) == Labels(("no animal", "tame", "wild"))
    assert UNK not in text.encode(SENTENCES[:1])[0]
    assert labels.rows(["wild", "no animal"]) == [[3], [1]]
    assert PAD not in [id for row in labels.rows(labels.names) for id in row]
    assert labels.vocab_size == 4  # PAD is no class
    with pytest.raises(UserError, match=r"'big' is not one of .*: no animal, tame, wild$"):
        labels.rows(["wild", "big"])


def test_a_run_that_starts_again_keeps_no_earlier_vocabulary(tmp_path, bytewise):
    """It has no checkpoint yet, so it may become another kind of model."""
    other = train_tokenizer(SENTENCES, "bpe", 80)
    kinds = [(bytewise, Labels(("a", "b"))), (bytewise, bytewise), (bytewise, other)]
    for before, after in itertools.permutations([Tokenizers(*kind) for kind in kinds], 2):
        save_tokenizers(before, tmp_path)
        save_tokenizers(after, tmp_path)
        data = DataConfig(vocabulary=after.identity[2])
        assert load_tokenizers(tmp_path, data) == after


def test_one_class_is_none(labelled):
    with pytest.raises(UserError, match=r"data\.label_column: all .* the class 'wild'"):
        make_labels(labelled("wild"))


def test_classes_are_saved_and_are_part_of_the_identity(tmp_path, bytewise):
    both = [Tokenizers(bytewise, Labels(names)) for names in (("a", "b"), ("b", "a"))]
    assert both[0].identity[2] != both[1].identity[2]
    save_tokenizers(both[0], tmp_path)
    data = DataConfig(vocabulary=both[0].identity[2])
    assert load_tokenizers(tmp_path, data) == both[0]
    (tmp_path / "labels.json").write_text(json.dumps(["b", "a"]))
    with pytest.raises(UserError, match="another vocabulary"):
        load_tokenizers(tmp_path, data)


@pytest.mark.parametrize("content", ["", "{}", "[1]", "[" * 10_000, "\xff", '["\\ud800"]'])
def test_damaged_classes_are_a_sentence(tmp_path, bytewise, content):
    save_tokenizers(Tokenizers(bytewise, Labels(("a", "b"))), tmp_path)
    (tmp_path / "labels.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=r"cannot read the classes in .*labels\.json"):
        load_tokenizers(tmp_path, DataConfig())
