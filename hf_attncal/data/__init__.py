"""Read and make data: corpora, tokenizer, batches and languages that are generated."""
