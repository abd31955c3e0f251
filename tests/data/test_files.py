"""Plain files: what is in them comes out, and what is wrong with them is said in one sentence."""

import bz2
import gzip
import lzma
import os
import shutil
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.config import DataConfig
from transformer.data.corpus import check_corpora, fingerprint, read_pairs
from transformer.data.files import check_order, language_of, zstd
from transformer.errors import UserError

PAIRS = [("One.", "Eins."), ("Two\u2028and\x85more\x0b\x0c\x1c.", "Zwei\rund drei."), ("", "Leer.")]


COMPRESS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd and zstd.compress,
}


def write(path: Path, content: str | bytes) -> str:
    """Write a file, compressed when its name says so."""
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(COMPRESS.get(path.suffix.lower(), bytes)(content))
    return str(path)


def parallel(folder: Path, source: str | bytes, target: str | bytes, suffix="") -> DataConfig:
    names = write(folder / f"s{suffix}", source), write(folder / f"t{suffix}", target)
    return DataConfig(dataset="", train_files=names)


def table(folder: Path, content: str | bytes, name="train.tsv") -> DataConfig:
    return DataConfig(dataset="", train_files=(write(folder / name, content),))


def read(data: DataConfig) -> list[tuple[str, str]]:
    return list(read_pairs(data, "train"))


def assert_one_sentence(error: UserError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_files_give_their_lines_whatever_ends_them(tmp_path, suffix, end, last_end, mark):
    source, target = (mark + end.join(side) + end * last_end for side in zip(*PAIRS))
    if not last_end:
        source += end  # its last line is empty: without an end it would be no line
    assert read(parallel(tmp_path, source, target, suffix)) == PAIRS
    lines = end.join("\t".join(pair) for pair in PAIRS) + end * last_end
    name = f"train.tsv{suffix}"
    for cased in (name, name.upper()):
        assert read(table(tmp_path, mark + lines, cased)) == PAIRS


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("text", ["One.\rTwo.\r", "One.\r\rTwo.", "\ufeffOne.\rTwo."])
def test_a_file_whose_lines_end_in_carriage_returns_alone_is_named(tmp_path, text, suffix):
    data = parallel(tmp_path, text, text, suffix)
    with pytest.raises(UserError, match=f"s{suffix}: its lines end with carriage returns alone"):
        list(read_pairs(data, "train"))


def test_a_carriage_return_in_a_line_is_text(tmp_path):
    data = parallel(tmp_path, "One.\r\r\n", "Ei\rns.\n")
    assert list(read_pairs(data, "train")) == [("One.", "Ei\rns.")]


sentences = st.text(st.characters(exclude_characters="\n\r\t\ufeff", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_any_text_comes_back(pairs):
    pairs = PAIRS[:1] + pairs  # a table of blank rows is empty, and a first line of NUL UTF-16
    with tempfile.TemporaryDirectory() as folder:
        source, target = ("".join(f"{line}\n" for line in side) for side in zip(*pairs))
        assert read(parallel(Path(folder), source, target)) == pairs
        both = "".join(f"{s}\t{t}\n" for s, t in pairs)
        rows = [pair for pair in pairs if any(map(str.strip, pair))]  # those that are not blank
        assert read(table(Path(folder), both)) == rows


@given(st.binary(), st.binary(), st.sampled_from(["", *COMPRESS]))
def test_random_bytes_give_pairs_or_a_user_error(source, target, suffix):
    with tempfile.TemporaryDirectory() as folder:
        data = parallel(Path(folder), source, target, suffix)
        if suffix:  # bytes that pretend to be compressed
            Path(data.train_files[0]).write_bytes(source)
        tsv = table(Path(folder), source)
        csv = table(Path(folder), source, "a.csv")
        for config in (data, tsv, csv, replace(tsv, tsv_quotes=True)):
            try:
                assert all(isinstance(side, str) for pair in read(config) for side in pair)
            except UserError as error:
                assert_one_sentence(error)


def test_further_columns_are_ignored(tmp_path):
    assert read(table(tmp_path, "a\tb\tCC-BY\n")) == [("a", "b")]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("a\nb\nc\n", "a\n", r"s has 3 lines and .*t has 1"),
        ("a\n", "", r"s has 1 lines and .*t has 0"),
        (b"a\nb\nc \xff d\n", "a\nb\nc\n", r"s, line 3: not UTF-8 \(byte 0xff\)"),
        ("a\n", b"\xc3\n", r"t, line 1: not UTF-8"),
        (gzip.compress(b"a\n"), "a\n", r"s is compressed: rename it to .*s\.gz"),
        (bz2.compress(b"a\n"), "a\n", r"s is compressed: rename it to .*s\.bz2"),
        ("a\n", lzma.compress(b"a\n"), r"t is compressed: rename it to .*t\.xz"),
        ("a b c\n".encode("utf-16-le"), "a\n", r"s seems to be UTF-16"),
        ("", "", r"train corpus is empty: .*s and .*t has no sentences"),
    ],
)
def test_parallel_files_that_are_wrong(tmp_path, source, target, message):
    with pytest.raises(UserError, match=message) as caught:
        read(parallel(tmp_path, source, target))
    assert_one_sentence(caught.value)


def test_tables_that_are_wrong(tmp_path):
    with pytest.raises(UserError, match=r"train\.tsv, line 2: 1 column\(s\) in 'no tab here'"):
        read(table(tmp_path, "a\tb\nno tab here\n"))
    with pytest.raises(UserError, match=r"empty: .*train\.tsv"):
        read(table(tmp_path, ""))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_that_are_not(tmp_path, suffix):
    path = tmp_path / f"a.tsv{suffix}"
    data = DataConfig(dataset="", train_files=(str(path),))
    path.write_bytes(b"a\tb\n" * 1000)
    with pytest.raises(UserError, match=r"cannot read .*a\.tsv.* after line 0.* it to a\.tsv$"):
        read(data)
    whole = COMPRESS[suffix]("".join(f"{i}\t{i * i}\n" for i in range(9000)).encode())
    path.write_bytes(whole[:-9])
    with pytest.raises(UserError, match=r"cannot read .*a\.tsv.* after line \d+"):
        read(data)


QUOTED = [('He said, "no".', "a\tb, c"), ('5" pipe', "two lines"), ("", "Zwei")]


def quoted(separator, end):
    """Those pairs as spreadsheets write them; a field of which ends a line."""
    rows = [('"He said, ""no""."', ' "a\tb, c"'), ('5" pipe', f'"two{end}lines"'), ("", "Zwei")]
    return "".join(separator.join(row) + end for row in rows)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.xz", "a.tsv", "a.tsv.bz2"])
def test_fields_in_quotes_are_read_without_them(tmp_path, name, end):
    content = quoted("\t" if "tsv" in name else ",", end)
    data = replace(table(tmp_path, "\ufeff" + content, name), tsv_quotes="tsv" in name)
    assert read(data) == QUOTED
    assert read(replace(data, tsv_columns=(2, 1))) == [pair[::-1] for pair in QUOTED]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_blank_rows_of_tables_are_left_out(tmp_path, name):
    separator = "\t" if "tsv" in name else ","
    rows = f"a{separator}b\n\nc{separator}\n{separator}\n {separator} \n\n"
    assert read(table(tmp_path, rows, name)) == [("a", "b"), ("c", "")]


def test_quotes_of_tables_without_them_are_text(tmp_path):
    assert read(table(tmp_path, '"a"\t"b\n')) == [('"a"', '"b')]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('a,b\n"c\nd",e\nf,"open\ng,h\n', r"a\.csv, line 4: a quoted field .*correct the row$"),
        ('a,b\n"c" d,e\n', r"a\.csv, line 2: a quoted field must end"),
        (f'a,"{"x" * 2**24}y"\n', r"line 1: a quoted field .*field limit"),
        ("a;b\n", r"1 column\(s\) in 'a;b', .*separated by commas, not by semicolons"),
        ("a,b\nc, d,e\n", r"line 2: 3 columns, but the first row has 2: .* a comma in quotation"),
        ("a,b\rc,d\n", r"line 1: a carriage return is outside of quotation marks"),
    ],
)  # fmt: skip
def test_quotes_that_are_wrong(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as caught:
        read(table(tmp_path, content, "a.csv"))
    assert_one_sentence(caught.value)


HEADERS = [
    ("source", "target"), ("en", "de"), ("English", "German"), ("Source text", "Translation"),
    ("", "en_text"), ("src_1", "TGT"), ("sentence", "label"), ("eng_Latn", "deu"), ("id", "german"),
]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz"])
def test_a_first_row_that_looks_like_a_header_is_reported_and_can_be_left_out(
    tmp_path, header, name
):
    separator = "\t" if "tsv" in name else ","
    rows = [header, ("Good evening.", "Guten Abend.")]
    data = table(tmp_path, "".join(f"{separator.join(row)}\n" for row in rows), name)
    with pytest.warns(UserWarning, match=f"first row of .*{name} looks like a header .*tsv_header"):
        check_corpora(data)
    with pytest.warns(UserWarning, match="looks like a header"):
        assert read(data) == rows
    before = fingerprint(data, "train")
    skipping = replace(data, tsv_header=True)
    with warnings.catch_warnings(action="error"):
        check_corpora(skipping)
        assert read(skipping) == rows[1:]
    assert fingerprint(skipping, "train") != before


@pytest.mark.parametrize(
    "pair", [("Good source.", "Gute Quelle."), ("no", "hi"), ("Text", "Satz"), ("1", "2")]
)
def test_a_pair_is_not_taken_for_a_header(tmp_path, pair):
    with warnings.catch_warnings(action="error"):
        assert read(table(tmp_path, "\t".join(pair) + "\n")) == [pair]


def test_a_table_without_the_columns_is_refused_before_anything_is_read(tmp_path):
    fine, other = (
        table(tmp_path, text, name) for text, name in (("a\tb\n", "a.tsv"), ("a", "b.csv"))
    )
    data = replace(fine, test_files=other.train_files)
    with pytest.raises(UserError, match=r"b\.csv, line 1: 1 column"):
        check_corpora(data)


def test_several_corpora_follow_each_other(tmp_path):
    first = parallel(tmp_path, "a\nb\n", "A\nB\n", ".gz").train_files
    second = table(tmp_path, "c\tC\n", "more.tsv.xz").train_files
    third = parallel(tmp_path, "d\n", "D\n").train_files
    assert read(DataConfig(dataset="", train_files=first + second + third)) == [
        ("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"),
    ]  # fmt: skip


def test_the_lines_of_each_corpus_are_counted_for_themselves(tmp_path):
    fine = table(tmp_path, "c\tC\n").train_files
    uneven = parallel(tmp_path, "a\nb\n", "A\n").train_files
    with pytest.raises(UserError, match=r"s has 2 lines and .*t has 1"):
        read(DataConfig(dataset="", train_files=fine + uneven))


def test_columns_are_chosen_by_number(tmp_path):
    files = table(tmp_path, "id1\t0.9\tone\teins\n").train_files
    assert read(DataConfig(dataset="", train_files=files, tsv_columns=(3, 4))) == [("one", "eins")]
    with pytest.raises(UserError, match=r"4 column\(s\) .*columns 2 and 5"):
        read(DataConfig(dataset="", train_files=files, tsv_columns=(2, 5)))


def test_files_can_be_swapped(tmp_path):
    files = parallel(tmp_path, "a\n", "b\n").train_files + table(tmp_path, "c\td\n").train_files
    straight, swapped = (
        DataConfig(dataset="", train_files=files, swap_files=swap) for swap in (False, True)
    )
    assert read(swapped) == [pair[::-1] for pair in read(straight)] == [("b", "a"), ("d", "c")]
    assert fingerprint(straight, "train") != fingerprint(swapped, "train")


def test_missing_files_name_what_is_there(tmp_path):
    data = parallel(tmp_path, "a\n", "b\n")
    write(tmp_path / "train.en", "a\n")
    wrong = str(tmp_path / "trian.en")
    with pytest.raises(
        UserError, match=r"data\.train_files: there is no file .*trian\.en.*train\.en"
    ):
        read(DataConfig(dataset="", train_files=(wrong, data.train_files[1])))
    with pytest.raises(UserError, match=r"no folder .*nowhere either"):
        read(DataConfig(dataset="", train_files=(str(tmp_path / "nowhere/a.tsv"),)))
    with pytest.raises(UserError, match=r"no file"):
        fingerprint(DataConfig(dataset="", train_files=(wrong, wrong)), "train")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), r"data\.test_files is not set"),
        (("s",), r"data\.test_files: s has no target file after it"),
        (("s", "t", "s"), r"data\.test_files: s has no target file after it"),
        (("s", "a.tsv"), r"data\.test_files: s has no target file after it"),
    ],
)
def test_a_wrong_number_of_files(files, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parallel(tmp_path, "a\n", "b\n")
    data = DataConfig(dataset="", train_files=("a", "b"), test_files=files)
    with pytest.raises(UserError, match=message):
        list(read_pairs(data, "test"))


def test_the_fingerprint_changes_with_the_files(tmp_path):
    data = parallel(tmp_path, "a\n", "b\n")
    before = fingerprint(data, "train")
    assert before == fingerprint(data, "train")
    write(tmp_path / "t", "bb\n")
    assert fingerprint(data, "train") != before
    swapped = DataConfig(dataset="", train_files=data.train_files[::-1])
    assert fingerprint(swapped, "train") != fingerprint(data, "train")


def in_place(path):
    path.write_bytes(b"c\n")


def renamed(path):
    other = path.with_name("other")
    other.write_bytes(b"c\n")
    other.rename(path)


def copied(path):
    other = path.with_name("other")
    other.write_bytes(b"c\n")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    shutil.copy2(other, path)


@pytest.mark.parametrize("change", [in_place, renamed, copied])
def test_other_text_of_the_same_size_and_time_has_another_fingerprint(tmp_path, change):
    data = parallel(tmp_path, "a\n", "b\n")
    path, before = tmp_path / "t", fingerprint(data, "train")
    stat = path.stat()
    time.sleep(0.05)  # more than a tick of the file system's clock
    change(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert fingerprint(data, "train") != before


def test_all_files_are_checked_before_anything_is_read(tmp_path):
    files = parallel(tmp_path, "a\n", "b\n").train_files
    check_corpora(DataConfig(dataset="", train_files=files))
    with pytest.raises(UserError, match=r"data\.test_files: there is no file .*nowhere\.tsv"):
        check_corpora(DataConfig(dataset="", train_files=files, test_files=("nowhere.tsv",)))


def test_archives_are_not_text(tmp_path):
    names = [write(tmp_path / name, "a\n") for name in ("a.tar.gz", "b.zip", "c")]
    for name in names[:2]:
        with pytest.raises(UserError, match=r"is an archive; unpack it"):
            read(DataConfig(dataset="", train_files=(name, names[2])))


@pytest.mark.parametrize(
    "name, swapped, language",
    [
        ("news.fr.gz", False, "fr"),
        ("news.fr-zh_Hant.tsv", False, "zh_Hant"),
        ("zh_Hant.fr", True, "fr"),
        ("fr_de-2.txt", False, "fr"),
        ("fr.zh.zh_Hant", False, "zh_Hant"),
        ("news.FR", False, "fr"),
        ("afr.tsv", False, None),
        ("corpus.tsv", False, None),
    ],
)
def test_the_target_language_is_in_the_name(name, swapped, language):
    data = DataConfig(targets=("fr", "zh_Hant", "zh"), target="fr", swap_files=swapped)
    corpus = (Path("a/fr.fr"), Path("b/fr") / name)
    corpus = corpus[::-1] if swapped else corpus
    if language:
        assert language_of(data, corpus) == language
    else:
        better = rf"{name[:-4]}\.fr\.tsv"
        with pytest.raises(
            UserError, match=rf"{name} is fr or zh_Hant or zh: rename it, .*{better}"
        ):
            language_of(data, corpus)


@pytest.mark.parametrize(
    "names, swapped, fits",
    [
        ("a.en a.fr", False, True),
        ("a.fr a.en", False, False),
        ("a.fr.gz a.en.gz", False, False),
        ("a.fr a.en", True, True),
        ("a.en a.fr", True, False),
        ("a.de a.eng_Latn", False, False),
        ("a.en_GB a.fr", False, True),
        ("a.txt a.en", False, True),
        ("a.tsv", False, True),
    ],
)
def test_names_that_say_the_other_order_are_refused(names, swapped, fits):
    data = DataConfig(source="en", target="fr", swap_files=swapped)
    corpus = tuple(map(Path, names.split()))
    if fits:
        check_order(data, corpus, "data.train_files")
    else:
        with pytest.raises(UserError, match="^data.train_files: by their names, .*, not from en"):
            check_order(data, corpus, "data.train_files")


@pytest.mark.parametrize(
    "names, swapped, targets, warning",
    [
        ("a.en a.fr", False, (), "its name, a.fr is in fr, not in de"),
        ("a.fr a.en", True, (), "its name, a.fr is in fr, not in de"),
        ("a.fr a.de", False, (), "its name, a.fr is in fr, not in en"),
        ("a.en a.fr", False, ("de", "fr"), ""),
        ("a.de a.en", False, ("de", "en"), ""),
        ("a.src a.ref", False, (), ""),
        ("a.eng a.ger", False, (), ""),
    ],
)
def test_files_whose_names_say_another_language_are_warned_of(names, swapped, targets, warning):
    data = DataConfig(source="en", target="de", swap_files=swapped, targets=targets)
    silent = warnings.catch_warnings(action="error")
    with pytest.warns(UserWarning, match=warning) if warning else silent:
        check_order(data, tuple(map(Path, names.split())), "data.train_files")


def test_each_source_gets_the_tag_of_its_corpus(tmp_path):
    names = [
        write(tmp_path / name, text)
        for name, text in {"a.en": "one\n\n", "a.de": "eins\n\n", "b.fr.tsv": "un\ttwo\n"}.items()
    ]
    data = DataConfig(dataset="", train_files=tuple(names), targets=("de", "fr"), target="de")
    assert read(data) == [(">>de<< one", "eins"), ("", ""), (">>fr<< un", "two")]
    assert fingerprint(data, "train") != fingerprint(replace(data, targets=("fr", "de")), "train")


def test_sources_with_tags_get_no_second_one(tmp_path):
    lines = "one\n>>Next<<\n >>fr<< two\n"
    names = write(tmp_path / "a.en", lines), write(tmp_path / "a.fr", "un\nsuivant\ndeux\n")
    data = DataConfig(dataset="", train_files=names, targets=("de", "fr"), target="de")
    found = read_pairs(data, "train")
    assert [next(found)[0], next(found)[0]] == [">>fr<< one", ">>fr<< >>Next<<"]
    with pytest.raises(UserError, match=r"a\.en and .*a\.fr: source 3 begins with >>fr<<"):
        next(found)
    with pytest.raises(UserError, match="source 2 begins with >>Next<<"):  # a target, if no code
        list(read_pairs(replace(data, targets=("fr", "Next"), target="fr"), "train"))


@pytest.mark.parametrize(
    "targets, message",
    [
        (("fr", "de"), "no corpus of data.train_files is in de"),
        (("fr", "fra"), "fr and fra are the same language"),
    ],
)
def test_each_target_has_a_corpus_and_one_name(tmp_path, targets, message):
    names = write(tmp_path / "a.en", "one\n"), write(tmp_path / "a.fr", "un\n")
    data = DataConfig(dataset="", train_files=names, targets=targets, target="fr")
    with pytest.raises(UserError, match=message):
        check_corpora(data)
