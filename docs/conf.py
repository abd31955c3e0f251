"""The site of the documents, the notebooks and the functions (`make docs`).

Its source folder is that of the project, so that links between documents are the same here and on
GitHub. Notebooks are shown with their stored outputs; nothing is run or imported.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = html_title = "The Transformer as pure functions"
author = "The Functional Transformer authors"
[release] = re.findall(r'__version__ = "(.+)"', (ROOT / "transformer/__init__.py").read_text())

root_doc = "docs/index"
include_patterns = ["*.md", "*/*.md", "docs/api/**", "notebooks/*.ipynb"]
exclude_patterns = [".*", "build", "runs", "transformer", "docs/_build"]
extensions = ["myst_nb", "autoapi.extension", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
suppress_warnings = ["autoapi.python_import_resolution"]  # PAD, BOS, EOS, UNK = range(4)

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "html_image"]
nb_execution_mode = "off"

autoapi_dirs = [ROOT / "transformer"]
autoapi_root = "docs/api"
autoapi_add_toctree_entry = False
autoapi_options = ["members", "undoc-members"]
python_use_unqualified_type_names = True

html_theme = "furo"
html_extra_path = ["index.html"]  # leads from the site's root to docs/index.html


def setup(app):
    """Sphinx calls it."""
    app.connect("source-read", link_functions)
    app.connect("source-read", write_shapes)
    app.connect("autodoc-process-docstring", show_as_typed)
    app.connect("autoapi-skip-member", skip_constants_without_docstring)


def link_functions(app, docname, source):
    """Links to files of the package lead to the reference of their functions."""
    file = r"\((?:\.\./)*(transformer(?:/\w+)*?)(?:/__init__)?\.py\)"
    source[0] = re.sub(rf"\[`(\w+)`\]{file}", reference, source[0])
    source[0] = re.sub(rf"\]{file}", r"](/docs/api/\1/index)", source[0])


def reference(link):
    """A link to one function, in MyST."""
    name, module = link[1], link[2].replace("/", ".")
    return f"{{py:obj}}`{name} <{module}.{name}>`"


def write_shapes(app, docname, source):
    """Shapes as the source has them, Float[Array, "B T D"]; autoapi leaves their quotes out."""
    shape = r"jaxtyping\.(\w+)\[(?:jax\.Array|numpy\.ndarray), ([^\]]*)\]"
    if docname.startswith("docs/api/"):
        source[0] = re.sub(shape, r'\1[Array, "\2"]', source[0])


def show_as_typed(app, what, name, obj, options, lines):
    """Docstrings are plain text; the columns of their tables stand below each other."""
    if any(lines):
        lines[:] = [".. code-block:: text", "", *("   " + line for line in lines), ""]


def skip_constants_without_docstring(app, what, name, obj, skip, options):
    """They explain themselves where they are used, and some are defined in two branches."""
    return skip or (what == "data" and not obj.docstring)
