"""The documentation site: reference from docstrings, formulas as MathML, links to code, every link checked."""
