"""The table of contents of the documentation site, and which file of the repository each page is.

A page of the site is a Markdown file of the repository (`PAGES`, and all of `docs/`), or one that `build_site.py`
makes: `reference/…` and `results/…`. Every page is in `SECTIONS`; Sphinx refuses one that is not.
"""

from __future__ import annotations

PAGES = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "figures.md",
    "web/README.md": "page-sources.md",
}  # from outside of docs/

SECTIONS = {
    "Start": ["Overview <overview>", "getting-started"],
    "Guides": [
        "guides/structured-output",
        "guides/chat-backends",
        "guides/programs",
        "guides/caching",
        "guides/adapters",
        "guides/scaling",
        "guides/operations",
        "guides/from-vllm",
        "guides/from-sglang",
        "guides/from-outlines",
        "guides/from-guidance",
    ],
    "Concepts": ["concepts", "prefix-cache", "structured-generation", "architecture", "kernels", "compiled-core"],
    "Reference": [
        "constraints",
        "python-types",
        "program",
        "server",
        "terminal",
        "models",
        "constraint-engine",
        "scaling",
        "tensor-parallel",
        "bundled-model",
        "reference/api",
        "reference/http",
        "reference/command-line",
    ],
    "Project": [
        "Figures <figures>",
        "glossary",
        "issues-elsewhere",
        "contributing",
        "The page's sources <page-sources>",
        "security",
        "releasing",
        "changelog",
    ],
}


def trees() -> str:
    """The sections as tables of contents that only the side bar shows, for the end of the first page."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in SECTIONS.items()
    )
