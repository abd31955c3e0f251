"""Random models in the layout of the Marian toolkit, and what it computes with them, in numpy.

Names and formulas are those of https://github.com/marian-nmt/marian-dev, src/models/transformer.h
and src/layers; nothing here comes from the project.
"""

from functools import partial

import numpy as np

OPTIONS = {
    "type": "transformer", "dim-emb": 16, "enc-depth": 2, "dec-depth": 2, "transformer-heads": 4,
    "transformer-dim-ffn": 24, "transformer-ffn-depth": 2, "transformer-ffn-activation": "swish",
    "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d", "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention", "transformer-tied-layers": [],
    "transformer-no-projection": False, "transformer-train-position-embeddings": False,
    "transformer-guided-alignment-layer": "last", "transformer-dim-aan": 2048,
    "transformer-aan-depth": 2, "transformer-aan-activation": "swish",
    "transformer-aan-nogate": False, "tied-embeddings": False, "tied-embeddings-src": False,
    "tied-embeddings-all": True, "enc-cell": "gru", "dec-cell": "gru", "enc-type": "bidirectional",
    "enc-cell-depth": 1, "dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "dim-rnn": 1024,
    "skip": False, "layer-normalization": False, "right-left": False, "input-types": [],
    "ulr": False, "ulr-dim-emb": 0, "ulr-trainable-transformation": False, "lemma-dim-emb": 0,
    "bert-train-type-embeddings": True, "bert-type-vocab-size": 2,
    "version": "v1.10.0 6f6d4846 2021-02-06 15:35:16 -0800",
}  # fmt: skip

SHAPES = {
    "as OPUS-MT": {},
    "as transformer-base-prenorm": {
        "transformer-preprocess": "n", "transformer-postprocess": "da",
        "transformer-postprocess-top": "n", "transformer-ffn-activation": "relu",
    },
    "two vocabularies": {"tied-embeddings-all": False, "tied-embeddings": True},
    "nothing shared": {"tied-embeddings-all": False},
    "only the inputs shared": {"tied-embeddings-all": False, "tied-embeddings-src": True},
    "learned positions": {"transformer-train-position-embeddings": True},
    "a deep encoder": {"enc-depth": 3, "dec-depth": 1},
}  # fmt: skip
POSITIONS = 40


def as_yaml(options):
    def written(value):
        return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    return "".join(f"{name}: {written(value)}\n" for name, value in options.items())


def make_arrays(options, rows, seed=0):
    """All arrays of a model; `rows`: the sizes of the vocabularies."""
    generator = np.random.default_rng(seed)
    width, hidden = options["dim-emb"], options["transformer-dim-ffn"]
    is_pre = options["transformer-preprocess"] == "n"
    arrays = {}

    def add(name, *shape):
        scale = 0.3 if len(shape) == 2 and shape[0] > 1 else 0.5
        arrays[name] = (scale * generator.standard_normal(shape)).astype(np.float32)

    def norm(name, suffix="_pre" if is_pre else ""):
        add(f"{name}_ln_scale{suffix}", 1, width)
        add(f"{name}_ln_bias{suffix}", 1, width)

    for stack, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for layer in range(1, depth + 1):
            prefix = f"{stack}_l{layer}"
            for attention in ("self", "context")[: 1 + (stack == "decoder")]:
                for letter in "qkvo":
                    add(f"{prefix}_{attention}_W{letter}", width, width)
                    add(f"{prefix}_{attention}_b{letter}", 1, width)
                norm(f"{prefix}_{attention}_Wo")
            add(f"{prefix}_ffn_W1", width, hidden)
            add(f"{prefix}_ffn_b1", 1, hidden)
            add(f"{prefix}_ffn_W2", hidden, width)
            add(f"{prefix}_ffn_b2", 1, width)
            norm(f"{prefix}_ffn_ffn")
        if options["transformer-postprocess-top"]:
            norm(f"{stack}_top", "")
    if options["tied-embeddings-all"] or options["tied-embeddings-src"]:
        add("Wemb", rows[0], width)
    else:
        add("encoder_Wemb", rows[0], width)
        add("decoder_Wemb", rows[1], width)
    if not (options["tied-embeddings-all"] or options["tied-embeddings"]):
        add("decoder_ff_logit_out_Wt", rows[1], width)
    add("decoder_ff_logit_out_b", 1, rows[1])
    if options["transformer-train-position-embeddings"]:
        add("Wpos", POSITIONS, width)
    return arrays


def write_model(path, options, arrays):
    text = np.frombuffer(as_yaml(options).encode() + b"\0", np.int8)
    np.savez(path, **arrays, **{"special:model.yml": text})


class Toolkit:
    """What Marian computes for one pair of texts."""

    def __init__(self, options, arrays):
        self.options, self.arrays = options, arrays
        self.pre, self.post = (options[f"transformer-{when}process"] for when in ("pre", "post"))

    def logits(self, source, target):
        """[T, V] of the ids of a source with </s>, and of a target without its first token."""
        memory = self.stack("encoder", self.embedded("encoder", source), None)
        decoded = self.stack("decoder", self.embedded("decoder", target), memory)
        arrays = self.arrays
        if "decoder_ff_logit_out_W" in arrays:
            output = arrays["decoder_ff_logit_out_W"].T
        elif "decoder_ff_logit_out_Wt" in arrays:
            output = arrays["decoder_ff_logit_out_Wt"]
        else:
            output = arrays.get("Wemb", arrays.get("decoder_Wemb"))
        return decoded @ output.T + arrays.get("decoder_ff_logit_out_b", 0)

    def embedded(self, stack, ids):
        width, arrays = self.options["dim-emb"], self.arrays
        table = arrays.get("Wemb", arrays.get(f"{stack}_Wemb"))
        rows = table[np.asarray(ids, int)]
        if stack == "decoder":  # it begins with zeros, and reads each token after it is written
            rows = np.concatenate([np.zeros((1, width)), rows[:-1]])
        if "Wpos" in arrays:
            return rows + arrays["Wpos"][: len(ids)]
        signal = np.zeros((len(ids), width))
        timescales = width / 2
        for position in range(len(ids)):
            for number in range(width // 2):
                value = position * np.exp(number * -np.log(10000) / (timescales - 1))
                signal[position, number] = np.sin(value)
                signal[position, width // 2 + number] = np.cos(value)
        return np.sqrt(width) * rows + signal

    def stack(self, name, x, memory):
        depth = self.options["enc-depth" if name == "encoder" else "dec-depth"]
        for layer in range(1, depth + 1):
            prefix = f"{name}_l{layer}"
            attend, is_causal = partial(self.attend, f"{prefix}_self"), memory is not None
            x = self.sublayer(f"{prefix}_self_Wo", x, lambda y: attend(y, y, is_causal))
            if memory is not None:
                attend_to_source = partial(self.attend, f"{prefix}_context")
                x = self.sublayer(
                    f"{prefix}_context_Wo", x, lambda y: attend_to_source(y, memory, False)
                )
            x = self.sublayer(f"{prefix}_ffn_ffn", x, lambda y: self.ffn(f"{prefix}_ffn", y))
        if self.options["transformer-postprocess-top"] == "n":
            x = self.normed(f"{name}_top", x)
        return x

    def sublayer(self, norm, x, function):
        y = self.normed(norm, x, "_pre") if self.pre == "n" else x
        y = function(y) + x  # "a"; dropout, "d", is for training
        return self.normed(norm, y) if self.post.endswith("n") else y

    def normed(self, prefix, x, suffix=""):
        mean = x.mean(-1, keepdims=True)
        deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
        scale, bias = (self.arrays[f"{prefix}_ln_{kind}{suffix}"] for kind in ("scale", "bias"))
        return (x - mean) / deviation * scale + bias

    def attend(self, prefix, x, keys, is_causal):
        heads = self.options["transformer-heads"]

        def projected(letter, y):
            y = y @ self.arrays[f"{prefix}_W{letter}"] + self.arrays[f"{prefix}_b{letter}"]
            return y.reshape(len(y), heads, -1).transpose(1, 0, 2)

        q, k, v = projected("q", x), projected("k", keys), projected("v", keys)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        if is_causal:
            scores += np.triu(np.full(scores.shape[1:], -1e8), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        joined = (weights @ v).transpose(1, 0, 2).reshape(len(x), -1)
        return joined @ self.arrays[f"{prefix}_Wo"] + self.arrays[f"{prefix}_bo"]

    def ffn(self, prefix, x):
        hidden = x @ self.arrays[f"{prefix}_W1"] + self.arrays[f"{prefix}_b1"]
        if self.options["transformer-ffn-activation"] == "relu":
            hidden = np.maximum(hidden, 0)
        else:
            hidden = hidden / (1 + np.exp(-hidden))
        return hidden @ self.arrays[f"{prefix}_W2"] + self.arrays[f"{prefix}_b2"]
