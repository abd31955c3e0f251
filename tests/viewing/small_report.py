"""A report of a run whose name, test set and data are as nasty as texts can be."""

import dataclasses

from transformer.data.test_sets import TestSet
from transformer.evaluation.scores import References, score
from transformer.runs.folder import Launch
from transformer.viewing.report import (
    ReportData,
    attention_examples,
    result_with_details,
    write_page,
)

NASTY = "</script><b>the cat</b> & \u2028 'a' \"dog\" {{ 7 * 7 }} <end>"
PAIRS = [("the cat", "the cat sees"), ("a dog", "a dog ."), (NASTY, NASTY), ("", "")] * 3
METRICS = [
    {"step": 10, "seconds": 5.0, "loss": 3.0, "tokens_per_second": 100.0, "learning_rate": 0.1},
    {"step": 10, "seconds": 5.0, "validation_loss": 2.0, "validation_bleu": 7.0},
    {"step": 20, "seconds": 9.0, "loss": 2.0, "tokens_per_second": 50.0, "learning_rate": 0.2},
]


def write_report(path, model):
    """Of a translator: config, parameters, tokenizers."""
    config, params, tokenizers = model
    outputs = [target for _, target in PAIRS[:-1]] + ["the dog"]
    scores = score(outputs, References.of(config.data, PAIRS))
    record = {
        "test_set": NASTY, "languages": "en to de", "sentences": len(PAIRS),
        "scores": [dataclasses.asdict(one) for one in scores],
        "losses": [{"name": "nats/token", "value": 1.5, "interval": None}],
        "confidence": {"temperature": 0.7, "groups": [(0.5, 0.8, 1_234, 0.256)]},
    }  # fmt: skip
    result = (TestSet(NASTY, "nasty", PAIRS), record, outputs)
    data = ReportData(
        run=NASTY,
        checkpoint="best: step 20",
        config=config,
        parameters=12_345,
        metrics={"one": METRICS, "two": METRICS[:1]},
        launches=[Launch(0, 0.0, "core", 2, "a processor")],
        results=[result_with_details(config, tokenizers, *result)],
        attention=attention_examples(config, params, tokenizers, result, ["the cat", NASTY]),
        doctor=[NASTY],
    )
    write_page(path, data)
