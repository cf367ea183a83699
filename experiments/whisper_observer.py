"""An observer of Whisper for word times and unspoken words, beside OpenAI's heads, one head and pocketsphinx.

    python experiments/whisper_observer.py WHISPER TEXTS --output results/speech --save observer

WHISPER is a folder of whisper-tiny.en, TEXTS a folder with multi30k/ and tatoeba-deen/. The speech is spoken by
espeak-ng; measuring also needs pocketsphinx. With --save alone an observer is built and not measured.
"""

import argparse
import copy
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from spoken_words import VOICES, sentences, windows
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.whisper.generation_whisper import _dynamic_time_warping, _median_filter

from hf_attncal.adapters import save_adapter
from hf_attncal.inference.head_search import HeadPlace
from hf_attncal.io.files import write_json, write_text
from hf_attncal.metrics.records import record
from hf_attncal.speech.learning import learn_word_times, planted_evidence, prepared
from hf_attncal.speech.observed import Listener, Observation, Unspoken
from hf_attncal.speech.sound import FRAMES, RATE, SpokenWindow
from hf_attncal.speech.transcribing import load_whisper

TEXTS = {
    "train": ("multi30k/train.en.gz", "tatoeba-deen/train.en.gz"),
    "dev": ("multi30k/val.en", "tatoeba-deen/valid.en"),
    "test": ("multi30k/test_2016_flickr.en", "tatoeba-deen/test.en"),
}
SEEDS = {"train": 1, "dev": 2, "test": 3, "tuning": 4}
HEADLINES = Path(__file__).parents[1] / "results" / "headlines.json"
PAUSE = 0.3  # seconds
PLACE = HeadPlace(layer=2, head=5, shift=True)  # the best of six on the voices of "dev"
SIZES = {"train": 60, "dev": 8, "test": 40, "tuning": 20}  # windows
STEPS = 200  # of fine-tuning
EPOCHS = 10
CARD = """
## Word times of whisper-tiny.en

`attncal times AUDIO --model WHISPER --observer FOLDER` finds when each word is said, and words that nobody said.
Learned from synthetic English speech; real speech was not measured. On five voices that it did not learn from:

{scores}

Base model: whisper-tiny.en of OpenAI (MIT), which is not in this folder. The word times of its training came from
espeak-ng (GPL-3), of which nothing is in this folder either.
"""
Spans = list[tuple[float, float] | None]


def speech(folder: Path, group: str) -> list[SpokenWindow]:
    voices = "train" if group == "tuning" else group
    text = [line for name in TEXTS[voices] for line in sentences(folder / name, SEEDS[group])]
    random.Random(SEEDS[group]).shuffle(text)
    return list(windows(text, VOICES[voices], SIZES[group], SEEDS[group]))


# ---- measures ----


def errors(spoken: Sequence[SpokenWindow], found: Sequence[Spans]) -> dict[str, float]:
    """Return shares of starts and ends within a time, and the median error of starts in milliseconds."""
    starts, after, ends = [], [], []
    for window, spans in zip(spoken, found, strict=True):
        words = window.words
        for number, span in enumerate(spans):
            if span is None:
                continue
            starts.append(span[0] - words[number].start)
            if number and words[number].start - words[number - 1].end > PAUSE:
                after.append(starts[-1])
            if number + 1 < len(words) and words[number + 1].start - words[number].end > PAUSE:
                ends.append(span[1] - words[number].end)

    def within(values: list[float], seconds: float) -> float:
        return float((np.abs(values) < seconds + 1e-9).mean()) if values else float("nan")

    return {
        "words": len(starts),
        "starts_median_ms": 1000 * float(np.median(np.abs(starts))),
        "starts_within_50ms": within(starts, 0.05),
        "starts_within_100ms": within(starts, 0.1),
        "after_pause_within_100ms": within(after, 0.1),
        "ends_within_100ms": within(ends, 0.1),
    }


def area_and_found(scores: np.ndarray, planted: np.ndarray) -> dict[str, float]:
    """Return the AUC and the share of planted words above 99 % of the spoken ones."""
    ranks = scores.argsort().argsort()[planted] + 1.0
    pairs = planted.sum() * (~planted).sum()
    return {
        "unspoken_auc": float((ranks.sum() - planted.sum() * (planted.sum() + 1) / 2) / pairs),
        "found_at_1_percent": float((scores[planted] > np.quantile(scores[~planted], 0.99)).mean()),
    }


def observed(listener: Listener, spoken: Sequence[SpokenWindow], encoded: Sequence[torch.Tensor]) -> list[Spans]:
    found = []
    for window, states in zip(spoken, encoded, strict=True):
        words = [word.text for word in window.words]
        observation = listener.observe(states, len(window.audio) / RATE, words)
        found.append([tuple(span) for span in observation.spans(np.ones(len(words), bool))])
    return found


def recognised(
    listener: Listener,
    spoken: Sequence[SpokenWindow],
    encoded: Sequence[torch.Tensor],
    transcripts: Sequence[Sequence[str]],
) -> list[Spans]:
    """Return the spans of the words that the model recognised; None for the others."""
    found: list[Spans] = []
    for window, states, heard in zip(spoken, encoded, transcripts, strict=True):
        observation = listener.observe(states, len(window.audio) / RATE, heard)
        spans = observation.spans(np.ones(len(heard), bool))
        both = [[word.lower().strip(".,?!") for word in words] for words in ([w.text for w in window.words], heard)]
        own: Spans = [None] * len(window.words)
        for block in SequenceMatcher(None, *both, autojunk=False).get_matching_blocks():
            for number in range(block.size):
                own[block.a + number] = tuple(spans[block.b + number])
        found.append(own)
    return found


def measure(
    listener: Listener, unspoken: Unspoken, spoken: Sequence[SpokenWindow], encoded: Sequence[torch.Tensor]
) -> dict[str, object]:
    """Return the errors of given text, and how well words are found that were planted into it."""
    found: dict[str, object] = errors(spoken, observed(listener, spoken, encoded))
    windows_with_states = prepared(listener, spoken, "test", random.Random(SEEDS["test"]), encoded)
    evidence, planted = planted_evidence(listener, list(windows_with_states))
    probabilities = unspoken.probabilities(evidence)
    marked = probabilities > unspoken.alarm
    shares = {"spoken_marked": float(marked[~planted].mean()), "planted_marked": float(marked[planted].mean())}
    return found | area_and_found(probabilities, planted) | shares | {"planted": int(planted.sum())}


# ---- baselines ----


@torch.no_grad()
def attentions(listener: Listener, states: torch.Tensor, seconds: float, words: Sequence[str]) -> tuple:
    """Return the cross-attention of all heads, (layers, heads, tokens + 2, frames), and the words of the tokens."""
    ids, owners = listener.tokens(words)
    prompt = listener.prompt(states)
    inputs = torch.tensor([[*prompt, *ids]])
    listener.model.set_attn_implementation("eager")
    outputs = listener.model(
        encoder_outputs=BaseModelOutput(states), decoder_input_ids=inputs, output_attentions=True, use_cache=False
    )
    listener.model.set_attn_implementation("sdpa")
    every = torch.stack(outputs.cross_attentions)[:, 0, :, len(prompt) - 1 :, : round(seconds * FRAMES)]
    return every / every.sum(dim=-1, keepdim=True), owners


def by_listed_heads(weights: torch.Tensor, owners: np.ndarray, heads: Sequence[Sequence[int]]) -> Spans:
    """Return the spans of words as openai/whisper and transformers find them."""
    chosen = torch.stack([weights[layer, head] for layer, head in heads])
    deviation, mean = torch.std_mean(chosen, dim=-2, keepdim=True, unbiased=False)
    chosen = _median_filter((chosen - mean) / deviation, 7).mean(dim=0)
    tokens, frames = _dynamic_time_warping(-chosen.double().numpy())
    starts = frames[np.diff(tokens, prepend=-1) > 0] / FRAMES
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))
    bounds = starts[np.append(firsts, len(owners))]
    return list(pairwise(bounds))


def by_one_head(weights: torch.Tensor, owners: np.ndarray, head: tuple[int, int]) -> Spans:
    """Return the spans of words on the path of an observer, with the weights of a head of the model."""
    rows = weights[head].double().numpy()
    nothing = np.zeros(len(owners))
    observation = Observation(rows[:-1], rows[0] * 0 + 1 / rows.shape[1], nothing, owners)
    return [tuple(span) for span in observation.spans(np.ones(owners[-1] + 1, bool))]


def by_pocketsphinx(window: SpokenWindow) -> Spans | None:
    """Return the spans of a forced alignment, None for words that its dictionary lacks; None if it fails."""
    import pocketsphinx

    decoder = pocketsphinx.Decoder(samprate=RATE, loglevel="FATAL")
    words = [word.text.lower().strip(".,?!") for word in window.words]
    known = [number for number, word in enumerate(words) if decoder.lookup_word(word) is not None]
    decoder.set_align_text(" ".join(words[number] for number in known))
    decoder.start_utt()
    decoder.process_raw((window.audio * 32767).clip(-32768, 32767).astype("int16").tobytes(), full_utt=True)
    decoder.end_utt()
    segments = [s for s in decoder.seg() or () if not s.word.startswith(("<", "[", "("))]
    if [segment.word.partition("(")[0] for segment in segments] != [words[number] for number in known]:
        return None
    spans: Spans = [None] * len(words)
    for number, segment in zip(known, segments, strict=True):
        spans[number] = segment.start_frame / 100, (segment.end_frame + 1) / 100
    return spans


def baselines(listener: Listener, test: Sequence[SpokenWindow], dev: Sequence[SpokenWindow]) -> dict[str, dict]:
    heads = listener.model.generation_config.alignment_heads

    def read(spoken: Sequence[SpokenWindow], finders: dict[object, Callable]) -> dict[object, list[Spans]]:
        found: dict[object, list[Spans]] = {name: [] for name in finders}
        for window in spoken:
            words = [word.text for word in window.words]
            weights = attentions(listener, listener.encode(window.audio), len(window.audio) / RATE, words)
            for name, find in finders.items():
                found[name].append(find(*weights))
        return found

    config = listener.model.config
    every = [(n, h) for n in range(config.decoder_layers) for h in range(config.decoder_attention_heads)]
    tried = read(dev, {head: lambda w, o, head=head: by_one_head(w, o, head) for head in every})
    best = max(every, key=lambda head: errors(dev, tried[head])["starts_within_100ms"])
    finders = {
        "listed heads": lambda w, o: by_listed_heads(w, o, heads),
        "best head": lambda w, o: by_one_head(w, o, best),
    }
    results = {str(name): errors(test, spans) for name, spans in read(test, finders).items()}
    results["best head"]["head"] = list(best)
    return results


def pocketsphinx_baseline(test: Sequence[SpokenWindow]) -> dict:
    found = [(window, spans) for window in test if (spans := by_pocketsphinx(window)) is not None]
    return errors([window for window, _ in found], [spans for _, spans in found]) | {"windows": len(found)}


# ---- fine-tuning on other text ----


def fine_tuned(listener: Listener, spoken: Sequence[SpokenWindow], steps: int) -> object:
    """Return the model after steps of training its decoder, on the states of its encoder."""
    model = copy.deepcopy(listener.model)
    encoded = [listener.encode(window.audio) for window in spoken]
    optimizer = torch.optim.AdamW(model.model.decoder.parameters(), lr=1e-4)
    model.train()
    for step in range(steps):
        number = step % len(spoken)
        prompt, (ids, _) = listener.prompt(encoded[number]), listener.tokens([w.text for w in spoken[number].words])
        inputs = torch.tensor([[*prompt, *ids]])
        labels = torch.tensor([[-100] * (len(prompt) - 1) + [*ids, model.config.eos_token_id]])
        loss = model(encoder_outputs=BaseModelOutput(encoded[number]), decoder_input_ids=inputs, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


# ---- the runs ----


def learn(model: object, processor: object, folder: Path, seed: int) -> tuple:
    """Return the model with its observer, the learned probability, and the CPU seconds from speech to both."""
    train, dev = speech(folder, "train"), speech(folder, "dev")
    start = time.process_time()
    adapted, unspoken, lesson = learn_word_times(
        model, processor, train, dev, places=[PLACE], epochs=EPOCHS, seed=seed
    )
    seconds = time.process_time() - start
    print(lesson, f"{seconds:.0f} CPU seconds", flush=True)
    return adapted, unspoken, {"seconds": seconds, "agreement": lesson.agreement}


def run_observer(name: Path, folder: Path) -> Iterator[tuple[str, dict]]:
    """Yield the results of two seeds: text given, and text that the model recognises."""
    test, transcripts = speech(folder, "test"), []
    for seed in (1, 2):
        model, processor = load_whisper(name)
        base = Listener(model, processor, observing=False)
        encoded = [base.encode(window.audio) for window in test]
        before = [base.transcribe(states) for states in (encoded if seed == 1 else encoded[:5])]
        adapted, unspoken, learned = learn(model, processor, folder, seed)
        listener = Listener(adapted, processor)
        results = {"learned": learned, "given": measure(listener, unspoken, test, encoded)}
        yield f"observer_seed{seed}", results
        after = [listener.transcribe(states) for states in encoded[: len(before)]]
        results["equal_transcripts"] = sum(one == other for one, other in zip(before, after, strict=True))
        results["transcripts"] = len(before)
        transcripts = transcripts or after
        results["recognised"] = errors(test, recognised(listener, test, encoded, transcripts))
        yield f"observer_seed{seed}", results


def run_baselines(name: Path, folder: Path) -> Iterator[tuple[str, dict]]:
    test = speech(folder, "test")
    results = baselines(Listener(*load_whisper(name), observing=False), test, speech(folder, "dev"))
    yield "baselines", results
    yield "baselines", results | {"pocketsphinx": pocketsphinx_baseline(test)}


def run_tuned(name: Path, folder: Path) -> Iterator[tuple[str, dict]]:
    """Yield the results after the decoder was fine-tuned: an observer learned before, and one learned after."""
    test = speech(folder, "test")
    model, processor = load_whisper(name)
    base = Listener(model, processor, observing=False)
    encoded = [base.encode(window.audio) for window in test]
    tuned = fine_tuned(base, speech(folder, "tuning"), STEPS)
    found = []
    for window, states in zip(test, encoded, strict=True):
        words = [word.text for word in window.words]
        weights = attentions(Listener(tuned, processor, observing=False), states, len(window.audio) / RATE, words)
        found.append(by_listed_heads(*weights, model.generation_config.alignment_heads))
    results = {"listed heads": errors(test, found)}
    yield "tuned", results
    after, unspoken, _ = learn(tuned, processor, folder, 1)
    results["observer learned after"] = measure(Listener(after, processor), unspoken, test, encoded)
    yield "tuned", results
    before, unspoken, _ = learn(model, processor, folder, 1)
    weights = {n: p for n, p in before.state_dict().items() if ".attncal_" in n or "observer" in n}
    after.load_state_dict(weights, strict=False)
    results["observer learned before"] = measure(Listener(after, processor), unspoken, test, encoded)
    yield "tuned", results


RUNS = {"observer": run_observer, "baselines": run_baselines, "tuned": run_tuned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whisper", type=Path, help="folder of whisper-tiny.en")
    parser.add_argument("texts", type=Path, help="folder of English text")
    parser.add_argument("--runs", nargs="*", choices=RUNS, default=list(RUNS), help="what is measured [default: all]")
    parser.add_argument("--output", type=Path, help="folder of the results")
    parser.add_argument("--save", type=Path, help="folder of the observer")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.save is not None:
        adapted, unspoken, _ = learn(*load_whisper(options.whisper), options.texts, 1)
        save_adapter(adapted, options.save)
        unspoken.save(options.save)
        figures = [
            one
            for one in json.loads(HEADLINES.read_text(encoding="utf-8"))
            if one["name"].startswith("observer/whisper/")
        ]
        scores = [f"- {one['name'].rpartition('/')[2].replace('_', ' ')}: {one['value']:.1f} %" for one in figures]
        card = options.save / "README.md"
        write_text(card.read_text(encoding="utf-8") + CARD.format(scores="\n".join(scores)), card)
    for name in options.runs if options.output is not None else ():
        start = time.process_time()
        for file, results in RUNS[name](options.whisper, options.texts):
            config = {"windows": SIZES, "voices": VOICES, "seeds": SEEDS, "place": list(PLACE), "steps": STEPS}
            texts = {text: options.texts / text for group in TEXTS.values() for text in group}
            metadata = record(config, texts | {"model.safetensors": options.whisper / "model.safetensors"})
            seconds = time.process_time() - start
            write_json({**metadata, "cpu_seconds": seconds, "results": results}, options.output / f"{file}.json")
            print(file, results, flush=True)


if __name__ == "__main__":
    main()
