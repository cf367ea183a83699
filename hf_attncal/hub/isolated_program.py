"""Load a model as on a machine that has only transformers; `isolated.py` runs this file in a new process.

Reads a request from standard input, and writes to standard output the name of the model's class and, if there are
sentences, what `generate` makes of them; both JSON.
"""

import json
import sys

import transformers


def main() -> None:
    sys.modules["hf_attncal"] = None  # so that every import of the package fails, installed or not
    request = json.load(sys.stdin)
    where = {"revision": request.get("revision"), "trust_remote_code": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(request["name"], **where)
    model = getattr(transformers, request["auto"]).from_pretrained(request["name"], **where).eval()
    answer = {"class": type(model).__name__, "texts": []}
    if request["sentences"]:
        batch = tokenizer(request["sentences"], return_tensors="pt", padding=True)
        tokens = model.generate(**batch, **request["options"])
        answer["texts"] = tokenizer.batch_decode(tokens, skip_special_tokens=True)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
