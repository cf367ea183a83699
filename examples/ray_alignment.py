"""Align a table of sentence pairs with Ray Data: `pip install ray`, and then

    python examples/ray_alignment.py aligner pairs.parquet links --actors 4 --encoder auto

reads columns `source` and `target`, and writes Parquet files with a column `links` more. Every actor learns the
statistics of the encoder from the same sample, so that all link alike. One core more than actors is needed: without it
Ray waits for ever, as nobody reads the table.
"""

import argparse
from collections.abc import Sequence

import ray.data

from hf_attncal.alignment import AlignBatch

SAMPLE = 512  # pairs


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("aligner", help="folder or Hub name of a word aligner")
    parser.add_argument("pairs", help="Parquet file or folder")
    parser.add_argument("output", help="folder to write")
    parser.add_argument("--actors", type=int, default=2, help="processes that align, with a core each")
    parser.add_argument("--encoder", help="folder or Hub name, or auto [default: none]")
    args = parser.parse_args(arguments)
    pairs = ray.data.read_parquet(args.pairs)
    sample = [(row["source"], row["target"]) for row in pairs.take(SAMPLE)] if args.encoder else []
    aligned = pairs.map_batches(
        AlignBatch,
        fn_constructor_args=[args.aligner],
        fn_constructor_kwargs={"encoder": args.encoder, "sample": sample},
        batch_size=1024,
        compute=ray.data.ActorPoolStrategy(size=args.actors),
        num_cpus=1,
    )
    aligned.write_parquet(args.output)


if __name__ == "__main__":
    main()
