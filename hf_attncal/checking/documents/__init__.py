"""Check the files that people have: PO, XLIFF, Markdown, subtitles and tables, read, paired and noted.

`formats.py` is the table: a row for each format. `check_documents.py` goes from two names to findings.
"""
