"""Convert models: `python convert.py from-marian opus-mt-en-fr runs/en_fr`, and five other ways.

    from-marian       OPUS-MT and other models of Marian become runs: MarianMTModels of Hugging
                      Face, and .npz files of the Marian toolkit
    to-marian         runs become folders that transformers loads
    to-ctranslate2    runs, or MarianMTModels, become models of CTranslate2
    to-argos          the same as packages of Argos Translate and LibreTranslate
    to-safetensors    the weights of a run, for anything to read; from-safetensors: back

Output is written atomically. Nothing that is read is executed. A command that was killed (kill -9)
may leave a hidden folder .NAME-... or a file NAME.tmp, which can be deleted.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from transformer.commands import convert_line
from transformer.commands.program import run_command
from transformer.machine.signals import end_cleanly


def main(words: list[str]) -> None:
    command = convert_line.parse_convert(words)

    # Slow imports come after the command line has been understood.
    from transformer.errors import UserError
    from transformer.machine import devices

    try:
        import safetensors  # noqa: F401
    except ModuleNotFoundError:
        raise UserError("convert.py needs safetensors: pip install -e '.[convert]'") from None
    devices.configure_devices("cpu")
    end_cleanly()
    {
        convert_line.FromMarian: from_marian,
        convert_line.ToMarian: to_marian,
        convert_line.ToCTranslate2: to_ctranslate2,
        convert_line.ToArgos: to_argos,
        convert_line.ToSafetensors: to_safetensors,
        convert_line.FromSafetensors: from_safetensors,
    }[type(command)](command)


def from_marian(command: convert_line.FromMarian) -> None:
    from transformer.data.tags import known_tags
    from transformer.errors import UserError
    from transformer.interchange.marian import read_marian
    from transformer.interchange.marian_npz import is_npz, read_npz
    from transformer.interchange.model import new_output, save_run

    languages = command.source, command.target
    with new_output(command.run) as folder:
        if is_npz(command.folder):
            model = read_npz(command.folder, command.vocabularies, *languages)
        elif command.vocabularies:
            raise UserError("--vocabularies is for .npz files: remove it")
        else:
            model = read_marian(command.folder, *languages)
        save_run(folder, model)
    data, tags = model.config.data, model.tokenizers.source.tags
    print(
        f"{command.run}: {data.source} to {data.target}, "
        f"{model.config.model.target_vocab_size:,} tokens\n"
        + (f"begin each line with a target tag: {known_tags(tags)}\n" if tags else "")
        + f"translate with:  python translate.py {command.run}\n"
        f"train it further: python train.py CONFIG --from {command.run} --run NEW"
    )


def to_marian(command: convert_line.ToMarian) -> None:
    import dataclasses

    from transformer.interchange.card import model_card
    from transformer.interchange.marian import write_marian
    from transformer.interchange.model import load_translator, new_output
    from transformer.runs.folder import load_run_config

    config = dataclasses.replace(load_run_config(command.run), decode=command.decode)
    with new_output(command.folder) as folder:
        model = load_translator(command.run, command.checkpoint, config)
        card = model_card(command.run, config, model.tokenizers.source.tags)
        write_marian(folder, model, card)
    print(f"{command.folder}: MarianMTModel.from_pretrained({str(command.folder)!r})")


def to_ctranslate2(command: convert_line.ToCTranslate2) -> None:
    from transformer.decoding.shortlist import read_lexicon
    from transformer.errors import UserError
    from transformer.interchange.comparison import compare, read_sample
    from transformer.interchange.ctranslate2 import (
        not_carried,
        require,
        save_translator,
        save_vocabulary_map,
    )
    from transformer.interchange.marian import is_marian, load_any
    from transformer.interchange.model import new_output

    require()
    sizes = [name for name in ("shortlist", "frequent") if getattr(command, name)]
    if sizes and is_marian(command.run):
        raise UserError(
            f"--{sizes[0]}: {command.run} is not a run: convert it with from-marian, and make "
            "the shortlist with: python -m transformer.commands.shortlist RUN --files PAIRS"
        )
    with new_output(command.folder) as folder:
        model = load_any(command.run, command.checkpoint)
        tag, lexicon = chosen_tag(model, command.target), None
        if sizes:
            lexicon = read_lexicon(command.run, model.config, f"--{sizes[0]}")
        save_translator(model, folder, command.quantization, tag)
        if lexicon:
            save_vocabulary_map(model, lexicon, command.shortlist, command.frequent, folder, tag)
        if command.sentences:
            sample = read_sample(model.config.data, command.sample, command.sentences)
            if sample:
                compare(model, folder, sample, command.quantization, tag)
    for sentence in not_carried(model, tag):
        print(f"note: {sentence}")
    print(f"{command.folder}: ctranslate2.Translator({str(command.folder)!r})")


def to_argos(command: convert_line.ToArgos) -> None:
    from transformer.interchange.ctranslate2 import not_carried, require, save_package
    from transformer.interchange.marian import load_any

    require()
    model = load_any(command.run, command.checkpoint)
    tag = chosen_tag(model, command.target)
    save_package(model, command.file, command.quantization, tag)
    for sentence in not_carried(model, tag):
        print(f"note: {sentence}")
    print(f"{command.file}: argospm install {command.file}")


def chosen_tag(model, language: str) -> str:
    """The target tag of a language, "" where none is asked for. Raises UserError where the model
    has no such tag."""
    from transformer.data.tags import tag_of
    from transformer.errors import UserError

    tags = model.tokenizers.source.tags
    if language and not tags:
        raise UserError(f"--target {language}: this model has no target tags: remove --target")
    return tag_of(tags, language) if language else ""


def to_safetensors(command: convert_line.ToSafetensors) -> None:
    from transformer.interchange.model import copy_shortlist, new_output, save_plain
    from transformer.runs.load import load_run

    with new_output(command.folder) as folder:
        save_plain(folder, load_run(command.run, command.checkpoint))
        copy_shortlist(command.run, folder)
    print(f"{command.folder}: {', '.join(sorted(path.name for path in command.folder.iterdir()))}")


def from_safetensors(command: convert_line.FromSafetensors) -> None:
    from transformer.interchange.model import copy_shortlist, load_plain, new_output, save_run

    with new_output(command.run) as folder:
        save_run(folder, load_plain(command.folder))
        copy_shortlist(command.folder, folder)
    print(f"{command.run}: the run that {command.folder} was made from")


if __name__ == "__main__":
    run_command(main)
