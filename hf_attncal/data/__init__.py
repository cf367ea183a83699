"""The data room: corpora, tokenizer, batches and languages that are generated."""
