"""How much text a translating Discrete Transformer reads for a target token, by the length of the sentence.

    python experiments/field_sizes.py --data DIR --model single=runs/single1 --model two=runs/two1

DIR holds Multi30k (`val.en`, `val.de`). Writes results/fields/NAME_seedN.json: mean sizes of the receptive fields on
dev, tokens of the source and of the target, over all sentences and by the number of source tokens; teacher-forced.
"""

import argparse
from pathlib import Path

from committed import RESULTS
from frozen import Frozen, add_models, read_models
from receptive_fields import receptive_field_report
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq

from hf_attncal.data.corpora import load_parallel, tokenize_pairs
from hf_attncal.files import write_json
from hf_attncal.metrics import records

SOURCE, TARGET = "val.en", "val.de"
# Of the source, in tokens.
ALL = (1, 128)
LENGTHS = ((1, 10), (11, 14), (15, 18), (19, 24), (25, 128))


def measure(frozen: Frozen, data: Path, batch_size: int) -> dict:
    """Sizes over all sentences, and by length."""
    model, tokenizer = frozen.load()
    pairs = load_parallel({"source": str(data / SOURCE), "target": str(data / TARGET)})
    text, _ = tokenize_pairs(pairs, tokenizer, ALL[1])
    collate = DataCollatorForSeq2Seq(tokenizer, model)
    columns = text.select_columns(["input_ids", "labels"])
    lengths = [len(ids) for ids in text["input_ids"]]

    def report(first: int, last: int) -> dict:
        rows = [row for row, length in enumerate(lengths) if first <= length <= last]
        batches = DataLoader(columns.select(rows), batch_size, collate_fn=collate)
        return {"sentences": len(rows), **receptive_field_report(model, batches)}

    by_length = [{"source_tokens_from": first, "to": last, **report(first, last)} for first, last in LENGTHS]
    config = frozen.config(model) | {"experiment": "field_sizes", "batch_size": batch_size}
    files = frozen.files | {name: data / name for name in (SOURCE, TARGET)}
    penalty = model.config.receptive_field_penalty
    return records.record(config, files) | {"penalty": penalty, "dev": report(*ALL), "by_length": by_length}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of Multi30k")
    parser.add_argument("--batch-size", type=int, default=32)
    add_models(parser)
    args = parser.parse_args()
    for frozen in read_models(args.models):
        result = measure(frozen, args.data, args.batch_size)
        write_json(result, RESULTS / "fields" / f"{frozen.stem}.json")
        dev = result["dev"]
        print(f"{frozen.stem}: {dev['source_tokens']:.1f} of {dev['source_length']:.1f} source tokens")


if __name__ == "__main__":
    main()
