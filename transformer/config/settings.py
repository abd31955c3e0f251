"""Every setting of the system: what it means, its unit, its default and its limits.

Settings are frozen and hashable, so that jit can treat them as static. This file imports neither
jax nor flax: `python train.py --help` reads nothing heavier.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar

from tyro.conf import Suppress


@dataclass(frozen=True)
class Limit:
    """The smallest value of a setting (`above`: the value itself is not allowed) and its bounds."""

    lowest: float
    above: bool = False
    below: float = float("inf")
    highest: float = float("inf")

    def refusal(self, value: float) -> str | None:
        """The rule that `value` breaks, or None."""
        if value != value:
            return "must be a number"
        if value < self.lowest or (self.above and value == self.lowest):
            return f"must be {'above' if self.above else 'at least'} {self.lowest}"
        if value > self.highest:
            return f"must be at most {self.highest}"
        return None if value < self.below else f"must be below {self.below}"


Value = TypeVar("Value")
Derived = Annotated[Value, Suppress]
"""What train.py fills in: no flag sets it, but a config file may, to count parameters say."""

Positive = Annotated[int, Limit(1, below=2**31)]
Count = Annotated[int, Limit(0, below=2**31)]
PositiveNumber = Annotated[float, Limit(0, above=True)]
Penalty = Annotated[float, Limit(0, above=True, highest=100)]
NgramOrder = Annotated[int, Limit(0, highest=100)]
Number = Annotated[float, Limit(0)]
Fraction = Annotated[float, Limit(0, below=1)]
BleuTokenizer = Literal[
    "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "none"
]
BestBy = Literal["auto", "loss", "accuracy", "bleu", "chrf", "chrf++", "ter", "exact"]
"""What may choose checkpoints: of translators all of `evaluation.scores.METRICS`."""
LOWER_IS_BETTER = ("loss", "ter")
BeamSize = Annotated[int, Limit(1, below=1001)]
"""More would only fill the memory."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the Transformer; the defaults are the paper's base model (section 3)."""

    source_vocab_size: Derived[Count] = 0
    """Tokens in the source vocabulary; filled in from the tokenizer by train.py."""
    target_vocab_size: Derived[Count] = 0
    """Tokens in the target vocabulary, of which one is predicted; filled in by train.py."""
    classes: Derived[Count] = 0
    """Classes that an encoder alone sorts sentences into (`data.label_column`); 0: it predicts
    tokens; filled in by train.py."""
    encoder_layers: Count = 6
    """N, layers in the encoder; 0: a decoder alone, which continues text (a language model)."""
    decoder_layers: Count = 6
    """N, layers in the decoder; 0: an encoder alone, which fills in blanks (a masked model)."""
    d_model: Positive = 512
    """Width of the model."""
    num_heads: Positive = 8
    """h, attention heads; d_k = d_v = d_model / num_heads."""
    d_ff: Positive = 2048
    """Width inside the feed-forward layers."""
    dropout: Fraction = 0.1
    """P_drop on the output of each sublayer and on the sums of embeddings and positions."""
    attention_dropout: Fraction = 0.0
    """Dropout on the attention weights (not in the paper, 0.1 in its published code)."""
    activation_dropout: Fraction = 0.0
    """Dropout inside the feed-forward layers, after the activation."""
    norm: Literal["post", "pre"] = "post"
    """post: LayerNorm(x + Sublayer(x)), the paper's; pre: x + Sublayer(LayerNorm(x))."""
    norm_epsilon: PositiveNumber = 1e-6
    """Added to the variance in layer normalisation."""
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "relu"
    """Activation inside the feed-forward layers; gelu_tanh is GPT-2's."""
    attention_bias: bool = False
    """Biases in the four projections of attention (none in the paper)."""
    output_bias: bool = False
    """A bias on the logits."""
    tying: Literal["all", "target", "none"] = "all"
    """Shared embeddings: source, target and output (the paper's); target and output; none."""
    embedding_scale: bool = True
    """Embeddings times sqrt(d_model), as in the paper (section 3.4)."""
    positions: Literal["sinusoidal", "learned", "relative", "rotary"] = "sinusoidal"
    """Position encoding (section 3.5); relative: a learned bias in each head for how far tokens are
    from each other; rotary: queries and keys are turned by angles that grow with the position (Su
    et al., 2021, https://arxiv.org/abs/2104.09864)."""
    max_positions: Positive = 1024
    """Rows of the learned position table; the other kinds have no end."""
    max_offset: Positive = 64
    """With relative positions: tokens further away than this count as this far."""
    recompute: bool = False
    """Compute each layer again for its gradients: less memory, about a third more time; on TPUs it
    is always done."""
    accelerator: Derived[Literal["", "gpu", "tpu"]] = ""
    """What the program is made for, "gpu" (NVIDIA) or "tpu"; filled in for training on one. Long
    attention is one kernel there; on GPUs layers that are not computed again stand one after the
    other in the program instead of in a loop."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products; parameters, norms, softmax and loss stay in float32."""
    word_dropout: Fraction = 0.0
    """In training, the share of tokens read whose embedding is left out, each place by itself
    (after Gal and Ghahramani, 2016, https://arxiv.org/abs/1512.05287)."""

    @property
    def unit(self) -> str:
        """What is predicted, one after the other."""
        return "label" if self.classes else "token"


@dataclass(frozen=True)
class DataConfig:
    """Which text, how it becomes tokens, and how tokens become batches.

    An encoder reads the source side, a decoder the target side: with one of them alone, there is
    one side, and the other language is "".
    """

    dataset: str = "phrasebook/en_de"
    """A TFDS dataset by name, of sentence pairs or of text; "" when the data are files."""
    train_split: str = "train"
    """The TFDS split to train on."""
    validation_split: str = "validation"
    """The TFDS split to validate on."""
    test_split: str = "test"
    """The TFDS split that eval.py scores."""
    train_files: tuple[str, ...] = ()
    """Source file and target file (or the file of the one side there is), or one table (.tsv or
    .csv), one sentence a line; more corpora may follow, named in the same way; .gz, .bz2, .xz and
    .zst are decompressed."""
    validation_files: tuple[str, ...] = ()
    """The same for validation."""
    test_files: tuple[str, ...] = ()
    """The same for the test set."""
    tsv_columns: tuple[Positive, Positive] = (1, 2)
    """Columns of tables that hold source and target; the first column is 1."""
    tsv_quotes: bool = False
    """Fields of .tsv files may stand in quotes, as in .csv files: "" within is a quote, a tab is
    text, the end of a line a space."""
    tsv_header: bool = False
    """The first row of each table is a header, and left out."""
    label_column: Count = 0
    """Column of tables that holds the class, for an encoder alone: a classifier; 0: none."""
    windows: bool = False
    """Read a text, such as a book, as one stream of tokens, cut into windows of max_length; else
    each line is by itself. For a decoder or an encoder alone."""
    train_weights: tuple[Annotated[float, Limit(0, highest=1000)], ...] = ()
    """How often an epoch reads each corpus of train_files, such as 1 0.5 4; all of them once by
    default. Of a fraction, each epoch draws other pairs."""
    sampling: Number = 0.0
    """Cut the words of training pairs into pieces anew in each epoch. With unigram vocabularies
    the alpha of subword regularisation, such as 0.2 (Kudo, 2018,
    https://arxiv.org/abs/1804.10959), with bpe the probability of BPE-dropout, such as 0.1
    (Provilkov et al., 2020, https://arxiv.org/abs/1910.13267); 0: always the likeliest pieces."""
    swap_files: bool = False
    """Translate from the second file or column to the first: the other direction."""
    source: str = "en"
    """Source language: names the TFDS feature, and labels scores; "": no source side."""
    target: str = "de"
    """Target language; "": no target side. Codes of ISO 639, BCP 47, FLORES and OPUS are understood
    (zh, zho, zh-CN, zho_Hans)."""
    bleu_tokenizer: BleuTokenizer = "auto"
    """How BLEU finds words: one of sacreBLEU's tokenizers; auto: zh, ja-mecab or ko-mecab by the
    target language, char for Thai, Lao, Khmer, Burmese and Tibetan, else 13a."""
    manual_dir: str = ""
    """Folder of a dataset's files, downloaded earlier and looked for here first; so is the folder
    that a variable such as MULTI30K_DIR names."""
    tokenizer: Literal["unigram", "bpe", "word", "char"] = "unigram"
    """Kind of SentencePiece model to train on the training split."""
    vocab_size: Positive = 8000
    """Tokens in each vocabulary to train (an upper limit for word and char)."""
    source_vocab_size: Count = 0
    """Of two vocabularies the size of the source's; 0: vocab_size."""
    target_vocab_size: Count = 0
    """The same for the target's."""
    character_coverage: Annotated[float, Limit(0, highest=1)] = 0.0
    """Share of the text whose characters are in the vocabularies to train, from 0.98 to 1; rarer
    ones are unknown. 0: all, of more than 1,000 the most frequent."""
    user_symbols: tuple[str, ...] = ()
    """Tokens that are never cut, such as <2de>; they are part of the translations' text too."""
    split_digits: bool = False
    """Each digit is a token of its own in the vocabularies to train."""
    byte_fallback: bool = False
    """Spell characters that are not in the vocabulary as bytes instead of one unknown token."""
    normalisation: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    """Unicode normalisation of the source: NFKC with spaces tidied, NFKC, none. The target stays as
    it is written, since translations are compared with raw text. On both sides runs of spaces
    become one, and those at the ends of a text go, whatever this says."""
    lowercase: bool = False
    """Lower-case all text before it becomes tokens; translations come out in lower case."""
    shared_vocabulary: bool = True
    """One vocabulary for both languages, as the paper has for English-German; of one side alone
    there is always one."""
    source_tokenizer: str = ""
    """A SentencePiece model of your own for the source, instead of training one."""
    target_tokenizer: str = ""
    """The same for the target; with a shared vocabulary the two are one."""
    vocabulary: Derived[str] = ""
    """Identity of the run's tokenizers; filled in by train.py."""
    max_length: Positive = 256
    """Longest sentence to train on, in tokens, EOS included; longer pairs are left out, and longer
    text of one side is cut into parts."""
    batch_tokens: Positive = 4096
    """Most source and most target tokens in a batch, padding included."""
    num_buckets: Positive = 12
    """Batch shapes: pairs of like lengths share one, and each is compiled once."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Those that exist, of "source" and "target"."""
        return tuple(side for side in ("source", "target") if getattr(self, side))


VOCABULARY_SETTINGS = {
    "tokenizer", "vocab_size", "source_vocab_size", "target_vocab_size", "character_coverage",
    "user_symbols", "split_digits", "byte_fallback", "normalisation", "lowercase",
    "shared_vocabulary", "source_tokenizer", "target_tokenizer", "vocabulary",
}  # fmt: skip
"""Settings of `data` that say what the vocabulary is."""


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the warm-up schedule of section 5.3."""

    name: Literal["adam", "adamw", "muon", "schedule_free"] = "adam"
    """adam, as in the paper; adamw: with weight decay (Loshchilov and Hutter, 2019,
    https://arxiv.org/abs/1711.05101); muon: momentum of each weight matrix of the layers is
    orthogonalised, all else is Adam's (Jordan et al., 2024,
    https://kellerjordan.github.io/posts/muon/); schedule_free: AdamW without decay of the learning
    rate, for which weights are averaged (Defazio et al., 2024, https://arxiv.org/abs/2405.15682)."""
    muon_momentum: Fraction = 0.95
    """Decay of the momentum of muon."""
    muon_nesterov: bool = True
    """Muon looks ahead by Nesterov's momentum."""
    muon_rms: Number = 0.2
    """Root mean square of a matrix' update, in learning rates (Liu et al., 2025,
    https://arxiv.org/abs/2502.16982); 0: sqrt(max(1, outputs / inputs)) times an orthogonal one."""
    weight_decay: Number = 0.0
    """Of all optimizers but adam: each update takes this share, times the learning rate, off the
    weights, except those of norms and biases."""
    warmup_steps: Positive = 4000
    """Updates in which the learning rate rises."""
    scale: PositiveNumber = 1.0
    """Factor on equation 3."""
    cooldown_steps: Count = 0
    """Last updates of a run, in which the learning rate falls to zero in a straight line."""
    beta_1: Fraction = 0.9
    """Decay of Adam's first moment."""
    beta_2: Fraction = 0.98
    """Decay of Adam's second moment."""
    epsilon: PositiveNumber = 1e-9
    """Added to the root of Adam's second moment."""
    clip_norm: Number = 0.0
    """Largest global norm of the gradient; 0: no clipping."""
    skip_spikes: Number = 0.0
    """Skip an update whose gradient is longer than so many times the usual, such as 10 (as by hand
    in PaLM; Chowdhery et al., 2022, section 5.1); 0: none but those that are no numbers."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how often, and how reproducibly."""

    steps: Positive = 100_000
    """Updates in the whole run."""
    seed: Count = 0
    """Of initialisation, dropout and data order."""
    label_smoothing: Fraction = 0.1
    """Epsilon_ls of section 5.4."""
    r_drop: Annotated[float, Limit(0, highest=1000)] = 0.0
    """Weight of the divergence between two passes with different dropout, such as 5, in two to
    three times the time (R-Drop; Liang et al., 2021, https://arxiv.org/abs/2106.14448); 0: one
    pass."""
    ema_decay: Fraction = 0.0
    """Validate, keep and translate with an exponential moving average of the weights, such as 0.999
    (Polyak and Juditsky, 1992); 0: with the last ones."""
    micro_batches: Positive = 1
    """Parts in which a batch passes through the model before one update (gradient accumulation)."""
    shard_state: bool = False
    """Split parameters and Adam's moments over the devices, instead of keeping all on each (ZeRO;
    Rajbhandari et al., 2020, https://arxiv.org/abs/1910.02054)."""
    log_every: Positive = 100
    """Updates between lines in metrics.jsonl."""
    validate_every: Positive = 1000
    """Updates between validations, each followed by a checkpoint."""
    best_by: BestBy = "auto"
    """Which score of the validation set says what the best checkpoint is. auto: of translators
    BLEU, or chrF where less than half of the references have four words; of others the loss."""
    validation_beam_size: BeamSize = 1
    """Beam of the validation BLEU; 1: greedy."""
    patience: Count = 0
    """End training after so many validations in a row without a better `best_by`; 0: never."""
    keep_last: Positive = 5
    """Newest checkpoints kept."""
    keep_best: Positive = 1
    """Best checkpoints kept (`best_by`)."""
    origin: Derived[str] = ""
    """The run that the first weights came from; filled in by --from."""
    average_last: Positive = 5
    """Newest checkpoints that `--checkpoint average` averages (the paper: base 5, big 20)."""


FORMER_DEFAULTS = {"train.best_by": "bleu"}
"""What the absence of a setting means in runs that were begun before its default changed."""


@dataclass(frozen=True)
class DecodeConfig:
    """Beam search as in section 6.1."""

    beam_size: BeamSize = 4
    """Hypotheses kept; 1: greedy."""
    alpha: Annotated[float, Limit(0, highest=10)] = 0.6
    """Strength of the length normalisation; 0: none."""
    normalisation: Literal["gnmt", "length"] = "gnmt"
    """What log-probabilities are divided by: ((5 + length) / 6)^alpha or length^alpha."""
    stop: Literal["bound", "full", "heuristic"] = "bound"
    """When a sentence is done: no open hypothesis can still win; beam_size have ended; beam_size
    have ended and no open one would be better than the worst of them, if it ended now (the rule of
    Hugging Face's transformers)."""
    max_extra_length: Annotated[int, Limit(0, below=100_001)] = 50
    """Longest output, EOS included: source tokens (times length_ratio) plus this."""
    length_ratio: Derived[Annotated[float, Limit(1, highest=100_000)]] = 1.0
    """Target tokens that the limit of the output allows for each source token; filled in from the
    training pairs by train.py."""
    longest_target: Derived[Count] = 0
    """With a length_ratio above 1, source tokens times it count up to this: the longest target that
    was trained on; filled in by train.py."""
    max_length: Annotated[int, Limit(0, below=100_001)] = 0
    """Longest output whatever the source, EOS included; 0: as max_extra_length says."""
    forced_end: bool = False
    """The last token that max_length allows is EOS, and counts as certain (transformers' Marian);
    else hypotheses without an end come behind those that have one."""
    forbidden: tuple[Count, ...] = ()
    """Tokens that are never chosen, by number, besides PAD and BOS."""
    renormalise: bool = False
    """Share the probability of what is never chosen among the other tokens, in scores."""
    min_length: Annotated[int, Limit(0, below=100_001)] = 0
    """Fewest tokens of a translation before its EOS."""
    no_repeat_ngram: NgramOrder = 0
    """No n-gram of so many tokens occurs twice in a translation (Paulus et al., 2018,
    https://arxiv.org/abs/1705.04304); 0: any may."""
    repetition_penalty: Penalty = 1.0
    """Log-probabilities of tokens that a translation has already are multiplied by this (Keskar et
    al., 2019, https://arxiv.org/abs/1909.05858); 1: nothing is changed."""
    max_source_length: Positive = 1024
    """Longest source, in tokens. A longer text is translated sentence by sentence; of a longer
    sentence what is beyond is cut off, with a warning."""
    batch_sentences: Positive = 32
    """Sentences decoded together, in each of the two batches under way."""
    dtype: Literal["model", "float32", "bfloat16"] = "model"
    """Precision of weights and matrix products while decoding; model: as in training."""
    copy_without_letters: Derived[bool] = False
    """A line without a letter, such as a number or a timestamp, is its own translation; filled in
    by train.py: true unless the training pairs translate such lines otherwise."""


DERIVED_FROM_PAIRS = ("length_ratio", "longest_target", "copy_without_letters")
"""Settings of `decode` that train.py fills in from the training pairs."""


@dataclass(frozen=True)
class GenerateConfig:
    """How generate.py continues a text, or fills in its blanks."""

    max_tokens: Annotated[int, Limit(1, below=100_001)] = 100
    """Most tokens that are added to a text."""
    samples: BeamSize = 1
    """Continuations of each text, drawn from the model's probabilities."""
    temperature: Annotated[float, Limit(0, highest=1000)] = 1.0
    """What logits are divided by: below 1 likely tokens become likelier; 0: the likeliest alone."""
    top_k: Count = 0
    """Draw among so many of the likeliest tokens; 0: among all."""
    top_p: Annotated[float, Limit(0, above=True, highest=1)] = 1.0
    """Draw among the likeliest tokens that together have at least this probability."""
    seed: Count = 0
    """Of what is drawn; a line's continuations depend on it and on the number of the line."""
    beam_size: Annotated[int, Limit(0, below=1001)] = 0
    """Search for the likeliest continuations with a beam, instead of drawing; 1: greedy. It ends
    with the line, also in a run with `data.windows`."""
    min_length: Annotated[int, Limit(0, below=100_001)] = 0
    """Fewest tokens that are added."""
    no_repeat_ngram: NgramOrder = 0
    """Never add the same so many tokens in a row twice; 0: as often as it likes."""
    repetition_penalty: Penalty = 1.0
    """Factor on the log-probability of tokens that have been added before, such as 1.2."""
    words: Positive = 5
    """Likeliest words that are shown for each blank."""
    log_probs: bool = False
    """Begin each continuation with its log-probability, in nats, and a tab."""


@dataclass(frozen=True)
class Config:
    """One experiment."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def with_vocabularies(self, source_size: int, target_size: int, digest: str = "") -> "Config":
        """The config with what its tokenizers turned out to be; of a classifier's target, PAD is
        none of the classes."""
        labels = bool(self.data.label_column)
        sizes = {
            "source_vocab_size": source_size,
            "target_vocab_size": source_size if labels else target_size,
            "classes": target_size - 1 if labels else 0,
        }
        return dataclasses.replace(
            self,
            model=dataclasses.replace(self.model, **sizes),
            data=dataclasses.replace(self.data, vocabulary=digest),
        )

    def with_derived_of(self, run: "Config") -> "Config":
        """The config with what `decode` has of the training pairs of a run."""
        derived = {name: getattr(run.decode, name) for name in DERIVED_FROM_PAIRS}
        return dataclasses.replace(self, decode=dataclasses.replace(self.decode, **derived))


def by_name(config: Config) -> dict[str, object]:
    """Every setting as section.name -> value."""
    return {
        f"{section.name}.{name}": value
        for section in dataclasses.fields(Config)
        for name, value in vars(getattr(config, section.name)).items()
    }


def differing_fields(a: Config, b: Config) -> dict[str, tuple[object, object]]:
    """Settings that differ: name -> (value in a, value in b)."""
    ours, theirs = by_name(a), by_name(b)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
