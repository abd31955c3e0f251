"""Every setting of the system: what it means, its unit, its default and its limits.

Settings are frozen and hashable, so that jit can treat them as static. This package imports the
standard library alone: `python train.py --help` reads nothing heavier. The docstrings of fields are
the lines of `--help`.
"""

import dataclasses
import functools
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeVar


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
Derived = Annotated[Value, "derived"]
"""A derived field: train.py fills it in from the tokenizer, the training pairs or the devices.

It has no flag, and a config file may set only VOCABULARY_SIZES. Other derived fields are the last
of their section."""


def is_derived(hint: object) -> bool:
    """Whether a type annotation is that of a derived field."""
    return "derived" in getattr(hint, "__metadata__", ())


FORMER_NAMES = {"skip_spikes": "spike_threshold"}
"""Settings that were renamed. Config files, flags and run folders may have the former names."""

FORMER_DEFAULTS = {"train.best_by": "bleu"}
"""What the absence of a setting means in runs that began before its default changed."""


def current_name(name: str) -> str:
    """The name that a setting has now, with its section if that is given."""
    section, dot, field_name = name.rpartition(".")
    return section + dot + FORMER_NAMES.get(field_name, field_name)


def accept_former_names(section: type[Value]) -> type[Value]:
    """Lets the constructor of a section take the former names of its settings."""
    construct = section.__init__

    @functools.wraps(construct)
    def renamed(self, *args, **values):
        former = {FORMER_NAMES[name]: values.pop(name) for name in FORMER_NAMES.keys() & values}
        construct(self, *args, **values | former)

    constructed: typing.Any = section
    constructed.__init__ = renamed
    return section


Positive = Annotated[int, Limit(1, below=2**31)]
Count = Annotated[int, Limit(0, below=2**31)]
Length = Annotated[int, Limit(0, below=100_001)]
PositiveNumber = Annotated[float, Limit(0, above=True)]
Penalty = Annotated[float, Limit(0, above=True, highest=100)]
NgramOrder = Annotated[int, Limit(0, highest=100)]
Number = Annotated[float, Limit(0)]
Fraction = Annotated[float, Limit(0, below=1)]
UpToThousand = Annotated[float, Limit(0, highest=1000)]
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
    """Tokens in the source vocabulary."""
    target_vocab_size: Derived[Count] = 0
    """Tokens in the target vocabulary."""
    classes: Derived[Count] = 0
    """Classes of a classifier (`data.label_column`), which is an encoder alone; 0: the model
    predicts tokens."""
    encoder_layers: Count = 6
    """Layers in the encoder (N); 0: no encoder, so that the model is a decoder-only language model.
    """
    decoder_layers: Count = 6
    """Layers in the decoder (N); 0: no decoder, so that the model is an encoder-only masked
    language model or classifier."""
    d_model: Positive = 512
    """Width of the embeddings and of the output of every layer."""
    num_heads: Positive = 8
    """Attention heads (h); the width of each is d_k = d_v = d_model / num_heads."""
    d_ff: Positive = 2048
    """Hidden width of the feed-forward layers."""
    dropout: Fraction = 0.1
    """Dropout probability (P_drop) on the output of each sublayer and on the sum of embeddings and
    positions; 0: none."""
    attention_dropout: Fraction = 0.0
    """Dropout probability on the attention weights (0 in the paper, 0.1 in its published code); 0:
    none."""
    activation_dropout: Fraction = 0.0
    """Dropout probability inside the feed-forward layers, after the activation; 0: none."""
    norm: Literal["post", "pre"] = "post"
    """Place of layer normalisation. post: LayerNorm(x + Sublayer(x)), as in the paper; pre: x +
    Sublayer(LayerNorm(x))."""
    norm_epsilon: PositiveNumber = 1e-6
    """Added to the variance in layer normalisation."""
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "relu"
    """Activation inside the feed-forward layers; gelu_tanh is GPT-2's."""
    attention_bias: bool = False
    """Add biases to the four projections of attention (the paper has none)."""
    output_bias: bool = False
    """Add a bias to the logits."""
    tying: Literal["all", "target", "none"] = "all"
    """Embeddings that are shared. all: source, target and output, as in the paper; target: target
    and output; none: no embeddings."""
    embedding_scale: bool = True
    """Multiply embeddings by sqrt(d_model), as in the paper (section 3.4)."""
    positions: Literal["sinusoidal", "learned", "relative", "rotary"] = "sinusoidal"
    """Position encoding. sinusoidal: as in the paper (section 3.5); learned: an embedding of each
    position; relative: each head learns a bias for the distance between two tokens; rotary: queries
    and keys are rotated by angles that grow with the position (Su et al., 2021,
    https://arxiv.org/abs/2104.09864)."""
    max_positions: Positive = 1024
    """With learned positions: number of positions, in tokens; the other encodings have no limit."""
    max_offset: Positive = 64
    """With relative positions: largest distance, in tokens; larger ones are treated as this one."""
    recompute: bool = False
    """Recompute each layer in the backward pass (rematerialisation, also called gradient
    checkpointing): less memory, about a third more time; always on for TPUs."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products; parameters, norms, softmax and loss stay in float32."""
    word_dropout: Fraction = 0.0
    """Probability that the embedding of an input token is set to zero in training, independently at
    each position (after Gal and Ghahramani, 2016, https://arxiv.org/abs/1512.05287); 0: none."""

    accelerator: Derived[Literal["", "gpu", "tpu"]] = ""
    """What the program is compiled for, "gpu" (NVIDIA) or "tpu", while training on one. There long
    attention is one kernel."""

    @property
    def unit(self) -> str:
        """What is predicted, one after the other."""
        return "label" if self.classes else "token"


VOCABULARY_SIZES = ("model.source_vocab_size", "model.target_vocab_size", "model.classes")
"""Derived fields that a config file may set, for example to count the parameters of a preset."""


Perturbation = Literal["upper_case", "title_case", "typos", "without_accents", "merged", "cut"]
"""Ways in which text is changed, in training by settings of `data` of the same names."""


@dataclass(frozen=True)
class DataConfig:
    """Which text, how it becomes tokens, and how tokens become batches.

    An encoder reads the source side, a decoder the target side: with one of them alone, there is
    one side, and the other language is "".
    """

    dataset: str = "phrasebook/en_de"
    """Name of a TFDS dataset of sentence pairs or of text, huggingface:OWNER/NAME[/CONFIG] for one
    on the Hugging Face Hub, or huggingface:FOLDER for one in a folder (both need the extra
    `huggingface`); "": the data are files."""
    train_split: str = "train"
    """Split of the dataset to train on."""
    validation_split: str = "validation"
    """Split of the dataset to validate on."""
    test_split: str = "test"
    """Split of the dataset that eval.py scores."""
    train_files: tuple[str, ...] = ()
    """Training data as files, one sentence per line: a source file and a target file, or one table
    (.tsv or .csv), or one text file for an encoder or a decoder alone; append further corpora in
    the same form; .gz, .bz2, .xz and .zst files are decompressed."""
    validation_files: tuple[str, ...] = ()
    """Validation data as files, in the form of train_files."""
    test_files: tuple[str, ...] = ()
    """Test data as files, in the form of train_files."""
    tsv_columns: tuple[Positive, Positive] = (1, 2)
    """Numbers of the source and of the target column of tables; the first column is 1."""
    tsv_quotes: bool = False
    """Read quoted fields in .tsv files, as in .csv files: within quotes, "" is a quotation mark, a
    tab is text and a line break becomes a space."""
    tsv_header: bool = False
    """Skip the first row of each table, its header."""
    label_column: Count = 0
    """Number of the column of tables that holds the class, to train a classifier (an encoder
    alone); 0: no classifier."""
    windows: bool = False
    """Read a text, such as a book, as one stream of tokens that is cut into windows of max_length
    tokens, instead of line by line; only for an encoder or a decoder alone."""
    train_weights: tuple[UpToThousand, ...] = ()
    """How often each epoch reads each corpus of train_files, such as 1 0.5 4; a fraction samples
    different pairs in each epoch; by default each corpus is read once."""
    corpus_temperature: Number = 0.0
    """Temperature that evens out the sizes n of the corpora, or with `targets` of the languages: an
    epoch reads the largest once, and others (largest / n)^(1 - 1 / temperature) times, such as 5
    (Arivazhagan et al., 2019, https://arxiv.org/abs/1907.05019); 0: each corpus is read once."""
    sampling: Number = 0.0
    """Sample new segmentations of the training pairs in each epoch: alpha of subword regularisation
    for unigram vocabularies, such as 0.2 (Kudo, 2018, https://arxiv.org/abs/1804.10959), or
    probability of BPE-dropout for bpe, such as 0.1 (Provilkov et al., 2020,
    https://arxiv.org/abs/1910.13267); 0: always use the best segmentation."""
    upper_case: Fraction = 0.0
    """Share of the training pairs that are in upper case, others in each epoch. This and the next
    five settings make a model robust to such text; each pair is changed in one way at most."""
    title_case: Fraction = 0.0
    """Share of the training pairs in which each word begins with a capital letter."""
    typos: Fraction = 0.0
    """Share of the training pairs whose source has typos: letters that are left out, doubled,
    swapped or wrong, in one of ten words of at least four letters."""
    without_accents: Fraction = 0.0
    """Share of the training pairs whose source has no accents and umlauts (Latin and Greek)."""
    merged: Fraction = 0.0
    """Share of the training pairs that are read as one with the pair after them: two sentences
    that were not split, or have one context (Tiedemann and Scherrer, 2017,
    https://aclanthology.org/W17-4811/)."""
    cut: Fraction = 0.0
    """Share of the training pairs that end where a clause ends, if source and target have the same
    commas, colons and semicolons."""
    swap_files: bool = False
    """Swap source and target: translate from the second file or column to the first."""
    source: str = "en"
    """Source language, which also selects the feature or column of a dataset and labels scores; "":
    no source side (a decoder alone)."""
    target: str = "de"
    """Target language, in the same way; "": no target side (an encoder alone). Codes of ISO 639,
    BCP 47, FLORES and OPUS are accepted (zh, zho, zh-CN, zho_Hans)."""
    targets: tuple[str, ...] = ()
    """Target languages of one model that translates into several, such as de fr. The language of a
    corpus is the last one in the name of its target file or table, such as news.fr.gz; each source
    gets a tag of it, such as >>fr<<, which is a token. `target` is one of them."""
    bleu_tokenizer: BleuTokenizer = "auto"
    """The sacreBLEU tokenizer for BLEU. auto: zh, ja-mecab or ko-mecab for these target languages,
    char for Thai, Lao, Khmer, Burmese and Tibetan, 13a for all others."""
    manual_dir: str = ""
    """Folder with files of the dataset that you have downloaded, which is searched first; an
    environment variable such as MULTI30K_DIR does the same; "": no such folder."""
    tokenizer: Literal["unigram", "bpe", "word", "char"] = "unigram"
    """Kind of SentencePiece model to train on the training split."""
    vocab_size: Positive = 8000
    """Largest size of each vocabulary to train, in tokens; little text has fewer."""
    source_vocab_size: Count = 0
    """Size of the source vocabulary, in tokens, if it is not shared; 0: vocab_size."""
    target_vocab_size: Count = 0
    """Size of the target vocabulary, in tokens, if it is not shared; 0: vocab_size."""
    character_coverage: Annotated[float, Limit(0, highest=1)] = 0.0
    """Fraction of the training text, from 0.98 to 1, that the characters of the vocabularies cover;
    rarer characters become unknown tokens; 0: all characters, or only the most frequent ones if
    there are more than 1,000."""
    user_symbols: tuple[str, ...] = ()
    """Tokens that are never split, such as <name>; translations may contain them too."""
    split_digits: bool = False
    """Make each digit a separate token in the vocabularies to train."""
    byte_fallback: bool = False
    """Encode characters that are not in the vocabulary as bytes instead of as one unknown token."""
    normalisation: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    """Unicode normalisation of the source. nmt_nfkc: NFKC with spaces tidied; nfkc: NFKC; identity:
    none. The target is not normalised, since translations are compared with raw text. On both sides
    spaces at the ends of a text are removed, and runs of spaces become one."""
    lowercase: bool = False
    """Lower-case all text before it is tokenised; translations are then in lower case."""
    shared_vocabulary: bool = True
    """Use one vocabulary for source and target, as the paper does for English-German; always on for
    an encoder or a decoder alone."""
    source_tokenizer: str = ""
    """File of a SentencePiece model for the source; "": train one."""
    target_tokenizer: str = ""
    """File of a SentencePiece model for the target; "": train one. If the vocabulary is shared, one
    of the two files is enough."""
    max_length: Positive = 256
    """Longest sentence to train on, in tokens with EOS; longer pairs and longer texts of a
    classifier are left out, and longer texts of an encoder or a decoder alone are split."""
    batch_tokens: Positive = 4096
    """Most source tokens, and most target tokens, in a batch, with padding."""
    num_buckets: Positive = 12
    """Most batch shapes, each for pairs of similar lengths; each shape is compiled once."""

    vocabulary: Derived[str] = ""
    """Digest of the run's tokenizers."""

    @property
    def sides(self) -> tuple[str, ...]:
        """Those that exist, of "source" and "target"."""
        return tuple(side for side in ("source", "target") if getattr(self, side))

    @property
    def symbols(self) -> tuple[str, ...]:
        """All tokens that are never split: `user_symbols`, and the tags of `targets`."""
        return (*self.user_symbols, *(f">>{language}<<" for language in self.targets))

    @property
    def changed(self) -> dict[Perturbation, float]:
        """The share of the training pairs that are changed in each way."""
        shares = {kind: getattr(self, kind) for kind in typing.get_args(Perturbation)}
        return {kind: share for kind, share in shares.items() if share}


VOCABULARY_SETTINGS = {
    "tokenizer", "vocab_size", "source_vocab_size", "target_vocab_size", "character_coverage",
    "user_symbols", "split_digits", "byte_fallback", "normalisation", "lowercase",
    "shared_vocabulary", "source_tokenizer", "target_tokenizer", "vocabulary",
}  # fmt: skip
"""Fields of `data` that say what the vocabulary is."""


@accept_former_names
@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and the warm-up schedule of section 5.3."""

    name: Literal["adam", "adamw", "muon", "schedule_free"] = "adam"
    """adam, as in the paper; adamw: with weight decay (Loshchilov and Hutter, 2019,
    https://arxiv.org/abs/1711.05101); muon: momentum of each weight matrix of the layers is
    orthogonalised, all other weights use Adam (Jordan et al., 2024,
    https://kellerjordan.github.io/posts/muon/); schedule_free: AdamW with averaged weights and a
    learning rate that is constant after warm-up (Defazio et al., 2024,
    https://arxiv.org/abs/2405.15682)."""
    muon_momentum: Fraction = 0.95
    """Decay of the momentum of muon."""
    muon_nesterov: bool = True
    """Muon uses Nesterov's momentum."""
    muon_rms: Number = 0.2
    """Root mean square of Muon's update of a matrix, divided by the learning rate (Liu et al.,
    2025, https://arxiv.org/abs/2502.16982), which three Newton-Schulz steps reach roughly; 0:
    multiply the orthogonalised update by sqrt(max(1, outputs / inputs)) instead."""
    weight_decay: Number = 0.0
    """Each update subtracts this times the learning rate times the weights, except for norms and
    biases; not for adam; 0: none."""
    warmup_steps: Positive = 4000
    """Number of updates during which the learning rate rises (warm-up)."""
    scale: PositiveNumber = 1.0
    """Factor by which the learning rate of equation 3 is multiplied."""
    cooldown_steps: Count = 0
    """Number of updates at the end of a run over which a factor of the learning rate falls linearly
    from one to zero; 0: none."""
    beta_1: Fraction = 0.9
    """Decay of Adam's first moment."""
    beta_2: Fraction = 0.98
    """Decay of Adam's second moment."""
    epsilon: PositiveNumber = 1e-9
    """Added to the square root of Adam's second moment."""
    clip_norm: Number = 0.0
    """Scale gradients with a larger global norm down to this norm (clipping); 0: no clipping."""
    spike_threshold: Number = 0.0
    """Skip updates whose gradient norm is more than this many times the average norm, such as 10
    (for PaLM this was done by hand; Chowdhery et al., 2022, section 5.1); 0: skip only updates with
    a non-finite loss or gradient."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how often, and how reproducibly."""

    steps: Positive = 100_000
    """Number of updates in the whole run."""
    seed: Count = 0
    """Random seed of initialisation, dropout and data order."""
    label_smoothing: Fraction = 0.1
    """Label smoothing (epsilon_ls of section 5.4); 0: none."""
    r_drop: UpToThousand = 0.0
    """Weight of the divergence between two forward passes with different dropout, such as 5
    (R-Drop; Liang et al., 2021, https://arxiv.org/abs/2106.14448); training then takes two to three
    times as long; 0: one pass."""
    ema_decay: Fraction = 0.0
    """Decay of an exponential moving average of the weights, such as 0.999, which validation,
    checkpoints and translation then use (Polyak and Juditsky, 1992); 0: no average."""
    micro_batches: Positive = 1
    """Gradient accumulation: number of micro-batches into which each batch is split; 1: none."""
    shard_state: bool = False
    """Shard parameters and optimizer state over the devices, instead of keeping a copy on each
    (ZeRO; Rajbhandari et al., 2020, https://arxiv.org/abs/1910.02054)."""
    log_every: Positive = 100
    """Number of updates between two lines of metrics.jsonl."""
    validate_every: Positive = 1000
    """Number of updates between two validations; a checkpoint is saved after each."""
    best_by: BestBy = "auto"
    """Metric on the validation set that selects the best checkpoint. auto: BLEU for translators, or
    chrF if less than half of the references have four words; the loss for other models."""
    validation_beam_size: BeamSize = 1
    """Beam size for BLEU on the validation set; 1: greedy."""
    patience: Count = 0
    """Stop early after this many validations in a row without a better `best_by`; 0: never."""
    keep_last: Positive = 5
    """Number of newest checkpoints to keep."""
    keep_best: Positive = 1
    """Number of best checkpoints to keep, by `best_by`."""
    average_last: Positive = 5
    """Number of newest checkpoints that `--checkpoint average` averages (in the paper 5 for base
    and 20 for big)."""

    origin: Derived[str] = ""
    """The run that the first weights came from (`--from`)."""


@dataclass(frozen=True)
class DecodeConfig:
    """Beam search as in section 6.1."""

    beam_size: BeamSize = 4
    """Hypotheses per sentence; 1: greedy."""
    alpha: Annotated[float, Limit(0, highest=10)] = 0.6
    """Exponent of the length normalisation; 0: none."""
    normalisation: Literal["gnmt", "length"] = "gnmt"
    """Length normalisation: log-probabilities are divided by ((5 + length) / 6)^alpha (gnmt) or by
    length^alpha (length)."""
    stop: Literal["bound", "full", "heuristic"] = "bound"
    """When the search for a sentence stops. bound: no unfinished hypothesis can still win; full:
    beam_size hypotheses are finished; heuristic: beam_size hypotheses are finished, and no
    unfinished one would beat the worst of them if it ended now (the rule of Hugging Face's
    transformers)."""
    max_extra_length: Length = 50
    """Longest output, in tokens with EOS: the number of source tokens (times length_ratio, which is
    derived from the training pairs) plus this."""
    max_length: Length = 0
    """Longest output, in tokens with EOS, besides the limit by max_extra_length; 0: that limit
    alone."""
    forced_end: bool = False
    """Force EOS at max_length with log-probability 0, as Marian models of transformers do;
    otherwise unfinished hypotheses rank last."""
    forbidden: tuple[Count, ...] = ()
    """Token ids that are never chosen, besides PAD and BOS."""
    renormalise: bool = False
    """Renormalise probabilities after tokens that are never chosen have been excluded."""
    min_length: Length = 0
    """Shortest output, in tokens without EOS; 0: no minimum."""
    no_repeat_ngram: NgramOrder = 0
    """Allow each n-gram of this length only once in a translation (Paulus et al., 2018,
    https://arxiv.org/abs/1705.04304); 0: allow repetition."""
    repetition_penalty: Penalty = 1.0
    """Factor on the log-probability of tokens that the translation already contains (Keskar et al.,
    2019, https://arxiv.org/abs/1909.05858); 1: none."""
    term_bonus: Annotated[float, Limit(0, highest=100)] = 0.0
    """With a glossary: the score of a translation gets this for each token of a term that it has;
    0: it must have all terms."""
    shortlist: Annotated[int, Limit(0, highest=1_000)] = 0
    """A translation chooses among this number of tokens times the length of its source, rounded up
    to 32, 64, 128, ...: tokens that translate those of the source, and frequent ones (of
    RUN/shortlist.npz, by python -m transformer.commands.shortlist); 0: among all tokens."""
    frequent: Count = 0
    """All translations choose among this number of tokens, those that are most frequent in the
    targets of the training pairs (of RUN/shortlist.npz too); 0: among all tokens."""
    max_source_length: Positive = 1024
    """Longest source, in tokens; a longer text is translated sentence by sentence, and a longer
    sentence is truncated, with a warning."""
    batch_sentences: Positive = 32
    """Number of sentences in a batch; two batches are decoded at a time."""
    dtype: Literal["model", "float32", "bfloat16"] = "model"
    """Precision of weights and matrix products while decoding; model: as in training."""

    length_ratio: Derived[Annotated[float, Limit(1, highest=100_000)]] = 1.0
    """Target tokens that the limit of the output allows for each source token."""
    longest_target: Derived[Count] = 0
    """With a length_ratio above 1, source tokens times it count up to this, the longest target that
    was trained on."""
    copy_without_letters: Derived[bool] = False
    """Copy a line without a letter, such as a number or a timestamp, instead of translating it: on
    unless the training pairs translate such lines otherwise."""
    restore_case: Derived[bool] = False
    """Translate a line in capitals by reading it in the case of the training text, and write its
    translation in capitals: on unless 1 % of the training sources are in capitals."""


DERIVED_FROM_PAIRS = (
    "length_ratio", "longest_target", "copy_without_letters", "restore_case",
)  # fmt: skip
"""The derived fields of `decode`, which follow from the training pairs."""


@dataclass(frozen=True)
class GenerateConfig:
    """How generate.py continues a text, or predicts its masked words."""

    max_tokens: Annotated[int, Limit(1, below=100_001)] = 100
    """Most tokens to add to each text."""
    samples: BeamSize = 1
    """Number of continuations of each text, sampled from the model's probabilities unless beam_size
    is set."""
    temperature: UpToThousand = 1.0
    """Sampling temperature, by which the logits are divided: below 1 likely tokens become likelier;
    0: always the likeliest token."""
    top_k: Count = 0
    """Sample from this many of the likeliest tokens; 0: from all tokens."""
    top_p: Annotated[float, Limit(0, above=True, highest=1)] = 1.0
    """Sample from the likeliest tokens that together have at least this probability (nucleus
    sampling); 1: from all tokens."""
    seed: Count = 0
    """Random seed; the continuations of a line depend on the seed and on the number of the line."""
    beam_size: Annotated[int, Limit(0, below=1001)] = 0
    """Beam size to search for the likeliest continuations instead of sampling; they end with the
    line, even in a run with `data.windows`; 1: greedy; 0: sample."""
    min_length: Length = 0
    """Fewest tokens to add to each text; 0: no minimum."""
    no_repeat_ngram: NgramOrder = 0
    """Add each n-gram of this length only once; 0: allow repetition."""
    repetition_penalty: Penalty = 1.0
    """Factor on the log-probability of tokens that were already added, such as 1.2; 1: none."""
    words: Positive = 5
    """Number of likeliest words to print for each mask (`__`), or of classes for each line."""
    log_probs: bool = False
    """Print the log-probability of each continuation, in nats, and a tab before it."""


@dataclass(frozen=True)
class Config:
    """One experiment."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def with_settings(self, settings: Mapping[str, object]) -> "Config":
        """The config with other values of some settings, by section.name."""
        sections: dict[str, dict] = {}
        for name, value in settings.items():
            section, _, field_name = name.partition(".")
            sections.setdefault(section, {})[field_name] = value
        changed = {
            name: dataclasses.replace(getattr(self, name), **values)
            for name, values in sections.items()
        }
        return dataclasses.replace(self, **changed)

    def with_vocabularies(self, source_size: int, target_size: int, digest: str = "") -> "Config":
        """The config with the derived fields of its tokenizers; PAD in a classifier's target is
        not a class."""
        labels = bool(self.data.label_column)
        return self.with_settings(
            {
                "model.source_vocab_size": source_size,
                "model.target_vocab_size": source_size if labels else target_size,
                "model.classes": target_size - 1 if labels else 0,
                "data.vocabulary": digest,
            }
        )

    def with_derived_of(self, run: "Config") -> "Config":
        """The config with the derived fields of `decode` of a run."""
        return self.with_settings(
            {f"decode.{name}": getattr(run.decode, name) for name in DERIVED_FROM_PAIRS}
        )


def by_name(config: Config) -> dict[str, object]:
    """Every setting as section.name -> value."""
    return {
        f"{section.name}.{name}": value
        for section in dataclasses.fields(Config)
        for name, value in vars(getattr(config, section.name)).items()
    }


def annotations() -> dict[str, object]:
    """The type annotation of every setting, as section.name -> annotation."""
    return {
        f"{section}.{name}": hint
        for section, kind in typing.get_type_hints(Config).items()
        for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    }


def without_derived(config: Config) -> Config:
    """A run's config as a config file would have it: derived fields have their defaults."""
    defaults, hints = by_name(Config()), annotations()
    return config.with_settings({n: defaults[n] for n in hints if is_derived(hints[n])})


def changed_settings(section: object, known: Collection[str]) -> dict[str, object]:
    """The settings of a section that `known` lacks and that are not their defaults, with values."""
    return {
        field.name: getattr(section, field.name)
        for field in dataclasses.fields(section)
        if field.name not in known and getattr(section, field.name) != field.default
    }


def differing_fields(a: Config, b: Config) -> dict[str, tuple[object, object]]:
    """Settings that differ: name -> (value in a, value in b)."""
    ours, theirs = by_name(a), by_name(b)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
