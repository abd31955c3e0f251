"""What phrasebook/en_de costs without learning: two baselines and their BLEU on the test split.

Run it with `python -m benchmarks.phrasebook_baselines`.
"""

import collections
import math
import re
from collections.abc import Iterable

import numpy as np
import sacrebleu

from transformer.data.datasets.phrasebook.grammar import HABEN, LEXICON, SEIN
from transformer.data.datasets.phrasebook.splits import splits


def words(sentence: str) -> list[str]:
    """The words of a sentence in lower case, without its punctuation."""
    return re.findall(r"[\w']+", sentence.lower())


def nearest_neighbour(train_pairs: Iterable[tuple[str, str]], sources: list[str]) -> list[str]:
    """For each source the German of the training pair whose English is most similar to it.

    Similarity is the cosine of word sets weighted by inverse document frequency.
    """
    pairs = list(train_pairs)
    index = collections.defaultdict(list)
    for position, (english, _) in enumerate(pairs):
        for word in set(words(english)):
            index[word].append(position)
    postings = {word: np.array(positions) for word, positions in index.items()}
    weights = {word: math.log(len(pairs) / len(found)) for word, found in postings.items()}
    norms = np.zeros(len(pairs))
    for word, found in postings.items():
        norms[found] += weights[word] ** 2
    norms = np.sqrt(norms) + 1e-9
    nearest = []
    for source in sources:
        overlap = np.zeros(len(pairs))
        for word in set(words(source)) & postings.keys():
            overlap[postings[word]] += weights[word] ** 2
        nearest.append(pairs[int(np.argmax(overlap / norms))][1])
    return nearest


def dictionary() -> dict[str, str]:
    """One German word form, or a few, for each English word form of the lexicon."""
    forms = {"am": SEIN[0][0], "are": SEIN[1][0], "is": SEIN[2][0], "was": SEIN[2][1]}
    forms |= {"were": SEIN[3][1], "not": "nicht", "has": HABEN[2], "an": "ein", "these": "diese"}
    for section in ("name", "opener", "numeral", "manner", "intensifier", "adverb", "preposition"):
        for row in LEXICON[section]:
            forms[row.english.lower()] = getattr(row, "german", row.english)
    for row in LEXICON["verb"]:
        infinitive, _, _, third, participle, _ = row.german.split()
        german = (infinitive.replace("|", ""), third, participle, third)
        forms = dict(zip(row.english.split(), german, strict=True)) | forms
    for row in LEXICON["modal"]:
        forms.setdefault(row.english.split()[0], row.german.split()[3])
    for row in LEXICON["determiner"]:
        forms[row.english] = row.german
    for row in LEXICON["pronoun"]:
        forms |= {row.english.lower(): row.nominative, row.english_object: row.accusative}
    for row in LEXICON["noun"]:
        forms |= {row.english: row.german, row.plural: row.german_plural}
    for row in LEXICON["adjective"]:
        forms[row.english] = row.german
    return forms


def word_by_word(sources: list[str]) -> list[str]:
    """Each English word replaced by the German word form that the dictionary has for it."""
    forms = dictionary()
    translations = []
    for source in sources:
        text = " ".join(forms.get(word, word) for word in words(source))
        translations.append(text[0].upper() + text[1:] + source[-1])
    return translations


def main() -> None:
    """Print the BLEU of both baselines on the test split."""
    data = splits()
    train = [(sentence.english, sentence.german) for sentence in data["train"]]
    sources = [sentence.english for sentence in data["test"]]
    references = [[sentence.german for sentence in data["test"]]]
    bleu = sacrebleu.BLEU()
    for name, hypotheses in (
        ("nearest neighbour", nearest_neighbour(train, sources)),
        ("word by word", word_by_word(sources)),
    ):
        score = bleu.corpus_score(hypotheses, references)
        print(f"{name}: BLEU {score.score:.1f} ({bleu.get_signature()})")


if __name__ == "__main__":
    main()
