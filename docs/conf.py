"""Configuration of the site that `make docs` builds; see docs/_ext for what is made from the code."""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))
# A tutorial imports `experiments`; the workers that run tutorials are processes of their own.
sys.path.insert(0, str(ROOT))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("MPLBACKEND", "agg")

about = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
project = "shapshift"
author = "The shapshift developers"
copyright = f"{author}. Apache-2.0"
release = version = about["version"]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "commands",
    "live_report",
    "inherited",
    "mathml",
    "notebooks",
    "repository_links",
]
exclude_patterns = ["_ext", "_templates", "**/tables", "tutorials/*.ipynb", "gallery/*.ipynb"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
templates_path = ["_templates"]
smartquotes = False  # an option is written with two hyphens
default_role = "py:obj"
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say the types in words
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_ignore_module_all = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": ["../examples/tutorials", "../examples/gallery"],
    "gallery_dirs": ["tutorials", "gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "order.ReadingOrder",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "image_scrapers": ("matplotlib",),
    "reset_modules": ("matplotlib",),
    "default_thumb_file": str(HERE / "_static" / "thumbnail.png"),
    "doc_module": ("shapshift",),
    "backreferences_dir": "reference/examples",
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 60,
    "plot_gallery": True,
    "write_computation_times": False,
    "nested_sections": False,
    "show_api_usage": False,
    "parallel": 2,
}

html_theme = "pydata_sphinx_theme"
html_title = f"shapshift {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_baseurl = ""
html_math_renderer = "mathml"
html_sidebars = {"index": [], "glossary": []}
html_theme_options = {
    "logo": {"text": "shapshift"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc", "sg_download_links"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "search_as_you_type": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
