"""The data room: corpora, tokenizer, batches and the synthetic language pair."""
