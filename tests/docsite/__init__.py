"""The documentation as a site: pages staged, the reference made from docstrings, then built.

`links` says where a link of a page leads on the site, `docstrings` turns one into Markdown,
`reference` writes a page for each public module, `stage` puts it all into one folder with
a navigation, and ``python -m tests.docsite`` has it built.
"""
