"""Settings of Sphinx for the documentation as a site: ``make docs``.

The source folder is the repository, so that links to files of the code are checked, too.
"""

project = 'vdl_ros'
extensions = ['myst_parser']
root_doc = 'docs/index'
include_patterns = ['README.md', 'CHANGELOG.rst', 'CONTRIBUTING.md', 'QUALITY_DECLARATION.md',
                    'docs/**.md']
exclude_patterns = ['.venv', 'build', 'install', 'log', 'runs']
# Links such as runs.md#plots.
myst_heading_anchors = 4
html_theme = 'furo'
html_title = project
