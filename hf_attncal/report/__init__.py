"""The report on what attention says: its contents, their figures, and the page that shows them."""
