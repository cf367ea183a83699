"""What is shown: charts, findings in sentences, and the page and files of a report. Nothing is measured here."""
