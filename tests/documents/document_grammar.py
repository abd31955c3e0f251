"""Documents of each format, made by a grammar: source documents, and what they are when their
sentences are copied."""

from xml.sax.saxutils import escape

from hypothesis import strategies as st

WORDS = [
    *("the", "a", "house", "Dr.", "Mr.", "don't", "3.5", "12", "never,", "(well)", "na\u00efve"),
    *("Stra\u00dfe", "\u6f22\u5b57", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e44\u0e17\u0e22"),
    *("e.g.", "x-ray", "stop.", "Why?", "Go!", "AT&T", "<", ">", '"', "'", "{name}", "%s", "%1$d"),
    *("https://example.org/a?b=1&c=2", "a.b@example.org", "\U0001f642", "\u2014", "\u00abso\u00bb"),
]
SPACES = [" "] * 8 + ["  ", "\n", "\n    ", "\t", "\u00a0", " \r\n "]
NAMES = ["b", "i", "a", "span", "em", "strong", "u"]
REFERENCES = ["&amp;", "&lt;", "&eacute;", "&#233;", "&#x27;", "&quot;", "&nbsp;", "&copy"]
VOIDS = ["<br>", "<br/>", "<img src='a.png'>", "<wbr>", "<!-- a <b> -->", "<code>x < y</code>"]
OTHERS = [
    "<script>if (a<b) { x = '<p>'; }</script>",
    "<style>p { }</style>",
    "<pre>\n a  b\n</pre>",
    "<hr/>",
    "<span translate=no>Jo</span>",
    "<div class='x notranslate'><p>N</p></div>",
]
BLOCKS = ["p", "div", "li", "td", "h1", "blockquote", "section"]

word = st.sampled_from(WORDS)
space = st.sampled_from(SPACES)


def joined(parts):
    return st.lists(parts, min_size=0, max_size=4).map("".join)


# Text with inline markup.
html_text = st.tuples(word.map(lambda one: escape(one)), st.one_of(space, st.just("")))
html_inline = st.recursive(
    st.one_of(
        html_text.map("".join), st.sampled_from(REFERENCES), st.sampled_from(VOIDS), word, space
    ),
    lambda inner: st.tuples(st.sampled_from(NAMES), joined(inner)).map(
        lambda pair: f"<{pair[0]} class='k'>{pair[1]}</{pair[0]}>"
    ),
    max_leaves=10,
)
html_block = st.recursive(
    st.one_of(joined(html_inline), st.sampled_from(OTHERS)),
    lambda inner: st.tuples(st.sampled_from(BLOCKS), joined(inner), space).map(
        lambda one: f"<{one[0]}>{one[1]}</{one[0]}>{one[2]}"
    ),
    max_leaves=8,
)
HEAD = "<!DOCTYPE html>\n<html><head><title>A &amp; b</title></head>\n"
html = joined(html_block).map(lambda body: f"{HEAD}<body>{body}</body></html>\n")
SOUP = (
    "<b> </b> <i> </p> <p> </i> < & a <!-- --> <script> </script> <br /> ]]> <![CDATA[ <?x?> &#xZ;"
    " </> <![ <![1]> <![foo[b]]> <![if <![if-b]> <![endif]>"
)
tag_soup = st.lists(st.sampled_from([*SOUP.split(" "), " c", "\n"]), max_size=20).map("".join)

# Lines of plain text.
line = st.lists(st.tuples(word, st.sampled_from([" ", "  ", "\u3000"])), max_size=8).map(
    lambda parts: "".join(one + gap for one, gap in parts)
)
separator = st.sampled_from(["\n", "\r\n", "\n\n", "\n   \n", "\u2028"])
paragraphs = st.lists(
    st.tuples(st.sampled_from(["", "  ", "\t"]), line, separator), max_size=6
).map(lambda parts: "".join(map("".join, parts)))

# Subtitles.
cue_word = st.one_of(word, st.sampled_from(["<i>so</i>", "{\\an8}", "<font color=red>red</font>"]))
cue_line = st.lists(cue_word, min_size=1, max_size=5).map(" ".join)


@st.composite
def subtitles(draw):
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = draw(st.sampled_from(["", "\ufeff", "WEBVTT" + end + end]))
    for number in range(1, draw(st.integers(1, 5))):
        dash = draw(st.sampled_from(["", "- ", "-"]))
        lines = draw(st.lists(cue_line, max_size=3))
        text += f"{number}{end}00:00:0{number},000 --> 00:00:0{number},900{end}"
        text += "".join(f"{dash}{one}{end}" for one in lines) + end
    return text


# Messages.
SPELLED = str.maketrans({"\n": "\\n", '"': '\\"', "\\": "\\\\", "\t": "\\t"})


@st.composite
def strings(draw, least=0):
    after = st.sampled_from([" ", "\n", "\t", '"', "\\", " <b>x</b> "])
    parts = draw(st.lists(st.tuples(word, after), min_size=least, max_size=5))
    gap = draw(st.sampled_from(["", '"\n"', ' "\r\n\t"']))
    return '"' + gap.join((one + after).translate(SPELLED) for one, after in parts) + '"'


@st.composite
def po(draw):
    """A source file, and the file whose translations are the messages."""
    source = expected = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    for _ in range(draw(st.integers(0, 4))):
        head = draw(st.sampled_from(["", "# note\n", "#, fuzzy\n", '#: a.c:1\nmsgctxt "menu"\n']))
        message = draw(strings(least=1))
        entry = f"\n{head}msgid {message}\n"
        kind = draw(st.sampled_from(["empty", "done", "plural"]))
        if kind == "empty":
            source, expected = f'{source}{entry}msgstr ""\n', f"{expected}{entry}msgstr {message}\n"
        elif kind == "done":
            own = f"{entry}msgstr {draw(strings(least=1))}\n"
            source, expected = source + own, expected + own
        else:
            plural = draw(strings(least=1))
            entry += f"msgid_plural {plural}\n"
            source += f'{entry}msgstr[0] ""\nmsgstr[1] ""\n'
            expected += f"{entry}msgstr[0] {message}\nmsgstr[1] {plural}\n"
    return source, expected


# Files of translators.
xml_text = st.tuples(word.map(escape), st.sampled_from(SPACES)).map("".join)
xml_leaf = st.sampled_from(
    ['<x id="2"/>', '<ph id="1">{0}</ph>', '<it pos="open">&lt;b&gt;</it>', "<!-- n -->", "&#233;",
     "<![CDATA[a & b]]>", '<bpt i="3" id="3">&lt;i&gt;</bpt>in<ept i="3" id="3">&lt;/i&gt;</ept>',
     '<mrk mtype="protected" translate="no">Jo</mrk>', "&lt;p class=&quot;q&quot;&gt;"]
)  # fmt: skip


CDATA = "<![CDATA[a & b]]>", "a &amp; b"


def xml_inline(names):
    return joined(
        st.recursive(
            st.one_of(xml_text, xml_leaf),
            lambda inner: st.tuples(st.sampled_from(names), joined(inner)).map(
                lambda pair: f"<{pair[0]}>{pair[1]}</{pair[0].split()[0]}>"
            ),
            max_leaves=6,
        )
    )


@st.composite
def xliff(draw):
    """A source file, and the file with a copy as each missing translation, without CDATA."""
    source = expected = '<?xml version="1.0" encoding="UTF-8"?>\n<xliff version="1.2"><file><body>'
    for number in range(draw(st.integers(1, 4))):
        content = "a" + draw(xml_inline(['g id="1"', 'mrk mtype="x"', 'pc id="4"']))
        gap = draw(st.sampled_from(["", "\n    "]))
        kind = draw(st.sampled_from(["none", "empty", "closed", "done", "no", "cut"]))
        attribute = ' translate="no"' if kind == "no" else ""
        old = {"none": "", "empty": "<target/>", "closed": '<target state="new"></target>',
               "done": "<target>fertig</target>", "no": "", "cut": ""}[kind]  # fmt: skip
        copy = content.replace(*CDATA)
        new = {"none": f"{gap}<target>{copy}</target>", "empty": f"<target>{copy}</target>",
               "closed": f'<target state="new">{copy}</target>', "done": old, "no": "",
               "cut": f"{gap}<target>{copy}</target>"}[kind]  # fmt: skip
        inner = f"{gap}<source>{content}</source>"
        if kind == "cut":
            inner = f"<source>all</source>{gap}<seg-source>{content}</seg-source>"
        head, tail = f'\n<trans-unit id="{number}"{attribute}>', "<note>n</note></trans-unit>"
        source += head + inner + old + tail
        expected += head + inner + new + tail
    end = "\n</body></file></xliff>\n"
    return source + end, expected + end


@st.composite
def tmx(draw):
    """A source file in English, and the file with a copy as each missing German translation."""
    source = expected = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/><body>'
    for _ in range(draw(st.integers(1, 4))):
        content = "a" + draw(xml_inline(["hi", 'hi type="b"']))
        gap = draw(st.sampled_from(["", "\n  "]))
        other = draw(st.sampled_from(["", '<tuv xml:lang="fr"><seg>x</seg></tuv>']))
        done = draw(st.booleans())
        own = f'{gap}<tuv xml:lang="en-US"><prop>p</prop><seg>{content}</seg></tuv>'
        there = '<tuv xml:lang="de-AT"><seg>da</seg></tuv>' if done else ""
        new = there or f'{gap}<tuv xml:lang="de"><seg>{content.replace(*CDATA)}</seg></tuv>'
        source += f"<tu>{own}{there}{other}</tu>"
        expected += f"<tu>{own}{new}{other}</tu>"
    end = "</body></tmx>\n"
    return source + end, expected + end


def same(source):
    return source, source


DOCUMENTS = {
    "paragraphs": paragraphs.map(same),
    "html": st.one_of(html, html, html, tag_soup).map(same),
    "srt": subtitles().map(same),
    "po": po(),
    "xliff": xliff(),
    "tmx": tmx(),
}
