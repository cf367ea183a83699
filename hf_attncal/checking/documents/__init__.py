"""Check of documents: PO, XLIFF, JSON, Markdown, subtitles and tables.

`document_formats.py` has the table of formats. `check_documents.py` turns two file names into findings.
"""
