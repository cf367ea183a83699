"""A model that CTranslate2 runs against `generate()` of the same model: how many times as fast, and whether it agrees.

    python benchmarks/translator.py
    python benchmarks/translator.py --d-model 16 --layers 1 --ffn 16 --vocab 60 --batch 2 --lengths 4 --repeats 1

The model has random weights, one head that makes links, and one thread; every hypothesis has as many tokens as its
source, so that none ends early. Seconds are of the processor, not of the wall: other work on the machine then changes
the ratios little. `agreement` is the share of tokens that are PyTorch's, `log_probability` how far they are apart.
"""

import argparse
import tempfile
import time
from importlib.metadata import version

import common
import torch
from rich.progress import track
from transformers import GenerationConfig, PreTrainedTokenizerFast

from hf_attncal import export
from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.running import Running

FORMATS = {"float32": "ctranslate2", "int8": "ctranslate2-int8"}


def tokenizer_of(args: argparse.Namespace) -> PreTrainedTokenizerFast:
    """A tokenizer whose words are numbers, with the special tokens of the model."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    names = ["<s>", "<pad>", "</s>", *map(str, range(3, args.vocab))]
    words = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, unk_token="<pad>"))
    words.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<pad>")


def compared(args: argparse.Namespace, ours, theirs, beams: int, length: int) -> dict:
    """Seconds of both for one batch, and how far the tokens agree."""
    inputs = common.batch(argparse.Namespace(**{**vars(args), "length": length}))
    del inputs["labels"]
    options = {"num_beams": beams, "do_sample": False, "max_new_tokens": length, "min_new_tokens": length}
    generation = GenerationConfig(**{**ours.generation_config.to_dict(), **options, "max_length": None})

    def by_torch() -> torch.Tensor:
        return ours.generate(**inputs, generation_config=generation)

    def by_translator() -> torch.Tensor:
        return theirs.generate(**inputs, **options, length_penalty=1.0)

    expected, found = by_torch()[:, 1:], by_translator()[:, 1 : 1 + length]
    torch_seconds, seconds = common.in_turn(args, by_torch, by_translator, time.process_time)
    return {
        "agreement": float((expected == found).double().mean()),
        "torch_seconds": common.spread(torch_seconds),
        "seconds": common.spread(seconds),
        "times_as_fast": common.spread([t / s for t, s in zip(torch_seconds, seconds, strict=True)]),
    }


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=8, length=80, repeats=3, variants=FORMATS)
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--lengths", nargs="+", type=int, default=[10, 30, 80], help="tokens of each sentence")
    parser.set_defaults(device="cpu", threads=1, warmup=1)
    args = parser.parse_args()
    args.length = max(args.lengths)
    common.set_up(args)
    result = common.record("translator", args, packages={"ctranslate2": version("ctranslate2")})
    variants, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        common.our_model(args, "guided").save_pretrained(folder)
        tokenizer_of(args).save_pretrained(folder)
        ours, _ = load_model(folder, Running(threads=args.threads), beams=None)
        for name in track(args.variants, description="precisions"):
            done = export(folder, format=FORMATS[name])
            theirs, _ = load_model(str(done.path), Running(threads=args.threads), beams=None)
            variants[name] = {"log_probability": done.difference, "beams": {}}
            for beams in args.beams:
                lengths = {str(length): compared(args, ours, theirs, beams, length) for length in args.lengths}
                ratios = [numbers["times_as_fast"]["median"] for numbers in lengths.values()]
                variants[name]["beams"][str(beams)] = {"lengths": lengths, "times_as_fast": common.spread(ratios)}
                for length, numbers in lengths.items():
                    ratio = numbers["times_as_fast"]
                    between = f"{ratio['min']:.2f} - {ratio['max']:.2f}"
                    agreed = f"{numbers['agreement']:.4f}"
                    rows.append([f"{name}, beam {beams}, {length} tokens", agreed, f"{ratio['median']:.2f}", between])
    common.show(
        f"CTranslate2, {args.layers} + {args.layers} layers", ["", "agreement", "times as fast", "min - max"], rows
    )
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
