"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) as pure functions in JAX.

Data flows one way: text -> pairs -> tokens -> batches -> model -> loss -> update -> checkpoint
-> search -> text -> score.

One alphabet of dimensions for every shape in the package:

    B  sentences in a batch          D  d_model, the width of the model
    S  positions in a source         H  attention heads
    T  positions in a target         K  d_k, the width of one head
    V  tokens in a vocabulary        F  d_ff, the width inside the feed-forward layer
    N  layers in a stack             W  hypotheses in a beam
"""

__version__ = "0.1.0"
