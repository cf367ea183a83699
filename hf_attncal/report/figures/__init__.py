"""Present a report: charts, findings in sentences, a page and files. Nothing is measured here."""
