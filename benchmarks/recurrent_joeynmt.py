"""JoeyNMT's recurrent model as the other side of `recurrent.py`, run by an interpreter that has JoeyNMT.

Standard input is one line of JSON, the settings, then commands, one a line: `training`, or the place of a batch among
the searches. Each is answered by a line when it has been run; the answer to the settings is JSON about the model.
Nothing of this project is imported, and nothing of JoeyNMT is changed: the step is what its `TrainManager` does to a
batch that it has sorted, the search is its own.
"""

import json
import sys
from types import SimpleNamespace

import joeynmt
import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

UNK, PAD, BOS, EOS = range(4)


def vocabulary(size: int) -> Vocabulary:
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "sep_token": None}
    ids = {"unk_id": UNK, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "sep_id": None, "lang_tags": []}
    return Vocabulary([str(n) for n in range(4, size)], SimpleNamespace(**names, **ids))


def model(settings: dict) -> Model:
    """The same cell, sizes, score and dropout as ours, with one table for both languages."""
    rnn = {
        "type": "recurrent",
        "rnn_type": settings["cell"],
        "embeddings": {"embedding_dim": settings["d_model"], "dropout": settings["dropout"]},
        "hidden_size": settings["d_model"],
        "num_layers": settings["layers"],
        "dropout": settings["dropout"],
    }
    decoder = {"attention": "luong", "input_feeding": settings["input_feeding"], "init_hidden": "bridge"}
    decoder["hidden_dropout"] = settings["dropout"]
    words = vocabulary(settings["vocab"])
    built = build_model(
        {"encoder": rnn | {"bidirectional": True}, "decoder": rnn | decoder, "tied_embeddings": True}, words, words
    )
    built.loss_function = "crossentropy", 0.0
    return built


def batch(sentences: dict) -> Batch:
    """The batch of JoeyNMT for lists of token ids; targets are read behind the first symbol and end with the last."""
    source = torch.tensor(sentences["input_ids"])
    target = None
    if "labels" in sentences:
        target = torch.tensor(sentences["labels"])
        target = torch.cat([torch.full_like(target[:, :1], BOS), target.where(target >= 0, PAD)], dim=1)
        target[torch.arange(len(target)), (target != PAD).sum(dim=1) - 1] = EOS
    lengths, rows = (source != PAD).sum(dim=1), torch.arange(len(source))
    made = Batch(source, lengths, None, target, None, rows, torch.device("cpu"), PAD, EOS)
    made.sort_by_src_length()
    return made


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    built = model(settings)
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-4)
    sentences, searches = batch(settings["training"]), [batch(part) for part in settings["searches"]]
    about = {"joeynmt": joeynmt.__version__, "torch": torch.__version__, "python": sys.version.split()[0]}
    print(json.dumps(about | {"parameters": sum(p.numel() for p in built.parameters())}), flush=True)

    def step() -> None:
        built.train()
        loss, *_ = built(return_type="loss", **vars(sentences))
        sentences.normalize(loss, "tokens").backward()
        optimizer.step()
        optimizer.zero_grad()

    def translate(part: Batch) -> None:
        built.eval()
        steps = settings["new_tokens"]
        options = {"max_output_length": steps, "min_output_length": steps, "beam_alpha": 1.0}
        found, *_ = search(built, part, beam_size=settings["beams"], **options)
        if found.shape != (len(part.src), steps):
            raise RuntimeError(f"expected {len(part.src)} hypotheses of {steps} tokens, got {found.shape}")

    for line in sys.stdin:
        step() if line.strip() == "training" else translate(searches[int(line)])
        print("done", flush=True)


if __name__ == "__main__":
    main()
