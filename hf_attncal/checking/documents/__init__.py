"""Check the files that people have: read, pair, check and write back PO, XLIFF, Markdown, subtitles, verses and others.

`formats.py` is the table: a row for each format. `check_documents.py` goes from two names to findings.
"""
