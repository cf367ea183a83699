"""Check the files that people have: PO, XLIFF, Markdown, subtitles and tables, read, paired and noted.

`document_formats.py` has the table: a row for each format. `check_documents.py` goes from two names to findings.
"""
