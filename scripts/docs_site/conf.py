"""Settings of Sphinx. The source that it reads is made by `build_site.py`."""

from pathlib import Path

import phloem

project = "phloem"
author = "phloem's authors"
copyright = "phloem's authors, Apache-2.0"
version = release = phloem.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
highlight_language = "text"
smartquotes = False  # or "--option" would lose a dash
suppress_warnings = ["misc.highlighting_failure"]  # "…" in code stands for what is left out

default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False
# "a, b: text" stays one line for both names
napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]
toc_object_entries_show_parents = "hide"

pygments_dark_style = "github-dark"
html_theme = "furo"
html_title = "phloem"
html_static_path = [str(Path(__file__).with_name("site.css"))]
html_favicon = str(Path(__file__).with_name("icon.svg"))
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f6f43", "color-brand-content": "#1f6f43"},
    "dark_css_variables": {"color-brand-primary": "#7fd1a0", "color-brand-content": "#7fd1a0"},
}
