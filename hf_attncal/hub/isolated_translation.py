"""Translate as on a machine that has only transformers; `isolated.py` runs this file in a new process.

Reads a request from standard input and writes the translations to standard output, both JSON.
"""

import json
import sys

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def main() -> None:
    sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
    request = json.load(sys.stdin)
    tokenizer = AutoTokenizer.from_pretrained(request["folder"], trust_remote_code=True)
    model = AutoModelForSeq2SeqLM.from_pretrained(request["folder"], trust_remote_code=True).eval()
    batch = tokenizer(request["sentences"], return_tensors="pt", padding=True)
    tokens = model.generate(**batch, **request["options"])
    json.dump(tokenizer.batch_decode(tokens, skip_special_tokens=True), sys.stdout)


if __name__ == "__main__":
    main()
