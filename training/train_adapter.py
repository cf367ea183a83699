"""Train an adapter on a finished translation model, or what it is compared with: a LoRA, or all of the weights.

    python training/train_adapter.py --config configs/adapter/gated.yaml --data DIR model.checkpoint=FOLDER

`model.checkpoint` is a folder or Hub id of a Marian, BART, mBART, Pegasus or M2M100 model. A model that
`train_translation.py` trained without any switch is such a model, too: a stock copy of it goes to the output folder.
Any setting can follow as `section.key=value`:

    python training/train_adapter.py --config configs/adapter/gated.yaml --data DIR --results results/gated.json \
        model.checkpoint=runs/multi30k training.output_dir=runs/gated training.seed=2 adapter.mask_rank=16

`--resume` goes on from the last checkpoint in `training.output_dir`. Several processes: `accelerate launch` on GPUs,
`torchrun --nproc_per_node 2` on CPUs. In the end `training.output_dir` holds the adapter (or the model) with its
tokenizer, the translations, and `results.json` with BLEU before and after. With `adapter.lora` there are two adapters,
each in a folder of its own, and `full`, a model with both in it (Marian and BART). `configs/adapter/base.yaml`
explains the keys that are not in `configs/reference_translation.yaml`.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch.utils.data import DataLoader
from train_translation import evaluate, make_trainer, start
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_attncal.adapters import AttentionCalibrationConfig, export_calibrated, save_adapter, set_null_mass
from hf_attncal.analysis.corpus import attention_report
from hf_attncal.data.corpora import load_parallel
from hf_attncal.metrics import records
from hf_attncal.models.cross_attention import calibration_of
from hf_attncal.training.calibrated import injected_adapters
from hf_attncal.training.settings import (
    SPLITS,
    TranslationConfig,
    check_keys,
    field_names,
    make_config,
    model_classes,
    parse_arguments,
    read_settings,
)

METHODS = {"attncal": AttentionCalibrationConfig, "lora": LoraConfig, "full": None}
SECTIONS = ("data", "model", "adapter", "training", "evaluation")
STOCK = {"marian": (MarianConfig, MarianMTModel), "bart": (BartConfig, BartForConditionalGeneration)}
# Set by the script, or with `model.label_smoothing`, for every method in the same way.
_NOT_IN_FILES = {"label_smoothing", "base_model_type", "base_d_model", "task_type", "peft_type", "inference_mode"}


# Of a LoRA beside a calibration: what would change the base model, or be reached by the mask network's loss.
_ONLY_PLAIN = {"bias", "init_lora_weights", "modules_to_save", "trainable_token_indices", "use_dora"}


@dataclass
class BaseModelConfig:
    """The model to adapt; `label_smoothing` is that of training."""

    checkpoint: str | None = None
    revision: str | None = None
    attn_implementation: str | None = None
    label_smoothing: float = 0.0


@dataclass
class AdapterRun:
    """All settings of one run: `common` as of any translation model, `adapter` = the fields of the method's config.

    `null_mass` is what `set_null_mass` gives NULL before training; None leaves it to `null_bias`. `lora` holds fields
    of `LoraConfig` for a LoRA that is trained together with an attention-calibration adapter.
    """

    common: TranslationConfig
    model: BaseModelConfig
    method: str = "attncal"
    adapter: dict[str, Any] = field(default_factory=dict)
    null_mass: float | None = None
    lora: dict[str, Any] | None = None

    def published(self) -> dict[str, Any]:
        """What a results file records: no places of this machine."""
        common = self.common.published()
        model = {name: value for name, value in vars(self.model).items() if name != "checkpoint"}
        model["checkpoint"] = Path(self.model.checkpoint or "").name
        sections = {name: common[name] for name in ("data", "training", "evaluation")}
        adapter = {"method": self.method, **self.adapter}
        adapter |= {n: getattr(self, n) for n in ("null_mass", "lora") if getattr(self, n) is not None}
        return {**sections, "model": model, "adapter": adapter}


def make_run(values: dict[str, Any]) -> AdapterRun:
    """The checked settings of a nested dictionary.

    Raises:
        ValueError: an unknown key (with the closest known one) or method, or a value that a method refuses.
    """
    check_keys(values, list(SECTIONS), "")
    common = make_config({name: values[name] for name in ("data", "training", "evaluation") if name in values})
    check_keys(values.get("model", {}), field_names(BaseModelConfig), "model")
    adapter = dict(values.get("adapter", {}))
    method = adapter.pop("method", "attncal")
    if method not in METHODS:
        raise ValueError(f"`adapter.method` must be one of {tuple(METHODS)}, got {method!r}.")
    own = ["lora"] if method == "attncal" else []
    own += ["null_mass"] if adapter.get("leaky") else []
    check_keys(adapter, ["method", *own, *_fields(METHODS[method])], "adapter")
    beside = {name: adapter.pop(name, None) for name in ("null_mass", "lora")}
    if method == "attncal":
        AttentionCalibrationConfig(**adapter)  # says what is wrong before text is read
    if beside["null_mass"] is not None and not 0 < beside["null_mass"] < 1:
        raise ValueError(f"`adapter.null_mass` must be between 0 and 1, got {beside['null_mass']!r}.")
    if beside["lora"] is not None:
        _check_lora(beside["lora"])
        if adapter.get("layers") is not None and not adapter.get("renormalize", True):
            raise ValueError(
                "`adapter.lora` with `layers` needs `renormalize: true`, got false: the two are exported as one model."
            )
    return AdapterRun(common, BaseModelConfig(**values.get("model", {})), method, adapter, **beside)


def _fields(config_class: type | None) -> list[str]:
    """The fields of a method's configuration that a file may set."""
    return sorted(set(field_names(config_class)) - _NOT_IN_FILES) if config_class else []


def _check_lora(lora: Any) -> None:
    """A LoRA beside a calibration: on named linear layers, and the base is the base when it is off."""
    if not isinstance(lora, dict) or not lora.get("target_modules"):
        raise ValueError(f"`adapter.lora` must be fields of LoraConfig with `target_modules`, got {lora!r}.")
    check_keys(lora, _fields(LoraConfig), "adapter.lora")
    plain = {field.name: field.default for field in fields(LoraConfig) if field.name in _ONLY_PLAIN}
    for name in _ONLY_PLAIN & lora.keys():
        if lora[name] != plain[name] and lora[name] not in (None, False):
            raise ValueError(
                f"`adapter.lora.{name}` must be left out, got {lora[name]!r}: beside a calibration the base model has "
                "to stay what it is, and nothing but linear layers can be adapted."
            )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the job; returns what `results.json` holds."""
    options = parse_arguments(__doc__, arguments)
    run = make_run(read_settings(options.config, options.settings))
    config = run.common
    if run.model.checkpoint is None:
        raise ValueError("`model.checkpoint` must name the model to adapt, got none. Add `model.checkpoint=FOLDER`.")
    args, output = start(options, config)
    tokenizer = AutoTokenizer.from_pretrained(run.model.checkpoint, revision=run.model.revision)
    with args.main_process_first(local=False):
        writes = args.process_index == 0 and not options.resume
        checkpoint = stock_checkpoint(run.model, tokenizer, output / "base", writes)
    model = build(run, checkpoint)
    splits = {name: load_parallel(config.data.corpus(name)) for name in SPLITS if getattr(config.data, name)}
    trainer, reports = make_trainer(model, tokenizer, splits, config, args)
    if run.null_mass is not None:
        text = trainer.train_dataset
        few = trainer.data_collator([text[n] for n in range(min(64, len(text)))])
        set_null_mass(model, few, run.null_mass)
    started = time.monotonic()
    trainer.train(resume_from_checkpoint=True if options.resume else None)
    seconds = time.monotonic() - started
    # Accelerate leaves autocast around the forward of what it was given: of a whole model that is the one that
    # `generate` calls, of PEFT's it is not. Every method is scored in the precision of its weights.
    # (Its `unwrap_model` would take transformers' own decorators off, too.)
    vars(model).pop("forward", None)

    results = {
        "config": run.published(),
        "software": records.software(),
        "hardware": {**records.hardware(), "processes": args.world_size, "bf16": args.bf16},
        "data_sha256": config.data.hashes(),
        "sentence_pairs": {name: asdict(report) for name, report in reports.items()},
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "steps": trainer.state.global_step,
        "wall_seconds": seconds,
    }
    for name in [name for name in splits if name != "train"]:
        results[name] = {}
        for what, context in states(model).items():
            with context:
                hypotheses, score = evaluate(model, tokenizer, splits[name], config)
            results[name][what] = {"bleu": score.score, "signature": score.signature}
            if args.process_index == 0:
                (output / f"{name}.{what}.hypotheses.txt").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
                print(f"{name}, {what}: BLEU {score.score:.2f}  {score.signature}")
    if "valid" in splits and calibration_of(model) is not None:
        dev = trainer.eval_dataset.select_columns(["input_ids", "labels"])
        batches = DataLoader(dev, args.per_device_eval_batch_size, collate_fn=trainer.data_collator)
        results["attention"] = attention_report(model, batches)
    results["log_history"] = trainer.state.log_history
    if args.process_index == 0:
        names = injected_adapters(model)
        for name in names:
            save_adapter(model, output / name, adapter_name=name)
        if not names:
            model.save_pretrained(output)
            tokenizer.save_pretrained(output)
        files = [output / name / "adapter_model.safetensors" for name in names or [""]]
        results["adapter_bytes"] = sum(file.stat().st_size for file in files if file.exists())
        records.write(results, output / "results.json", *filter(None, [options.results]))
        if names and model.config.model_type in STOCK:
            export_calibrated(model).save_pretrained(output / "full")
            tokenizer.save_pretrained(output / "full")
    return results


def stock_checkpoint(
    settings: BaseModelConfig, tokenizer: PreTrainedTokenizerBase, folder: Path, write: bool = True
) -> str:
    """The checkpoint itself, or a stock copy in `folder`, with its tokenizer, of a model of ours without a switch.

    The copy is written anew with `write`, or where there is none.

    Raises:
        ValueError: a model of ours with a switch.
    """
    config = AutoConfig.from_pretrained(settings.checkpoint, revision=settings.revision)
    kind = config.model_type.removeprefix("attncal_")
    if kind == config.model_type:
        return settings.checkpoint
    if config.calibration is not None or config.leaky or config.gumbel:
        raise ValueError(
            f"`model.checkpoint` must be a stock model, or one of ours with every switch off; {settings.checkpoint} "
            f"has `calibration={config.calibration!r}`, `leaky={config.leaky}`, `gumbel={config.gumbel}`."
        )
    if write or not folder.exists():
        config_class, model_class = STOCK[kind]
        ours = AutoModelForSeq2SeqLM.from_pretrained(settings.checkpoint, revision=settings.revision)
        known = set(field_names(config_class)) - {"architectures", "model_type", "auto_map"}
        stock = config_class(**{name: value for name, value in config.to_dict().items() if name in known})
        stock = model_class.from_pretrained(None, config=stock, state_dict=ours.state_dict())
        stock.generation_config = ours.generation_config
        partial = folder.with_name(f"{folder.name}.partial")  # half a copy must not be taken for one
        stock.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return str(folder)


def build(run: AdapterRun, checkpoint: str) -> PreTrainedModel | PeftModel:
    """The model to train: a frozen base with an adapter, or a model of which all is trained.

    A stock model has no label smoothing of its own and ignores how many tokens a step has; so LoRA and full training
    of Marian and BART use our class with every switch off, which is the stock model with both.
    """
    common = {"revision": run.model.revision if checkpoint == run.model.checkpoint else None}
    if run.model.attn_implementation is not None:
        common["attn_implementation"] = run.model.attn_implementation
    smoothing = run.model.label_smoothing
    if run.method == "attncal":
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, **common)
        config = AttentionCalibrationConfig(**run.adapter, label_smoothing=smoothing)
        if run.lora is None:
            return get_peft_model(model, config, revision=common["revision"])
        config.revision = common["revision"]  # PEFT's models hold one method; transformers' interface holds several
        model.add_adapter(config, "calibration")
        model.add_adapter(LoraConfig(task_type=TaskType.SEQ_2_SEQ_LM, **run.lora), "lora")
        model.set_adapter(["calibration", "lora"])
        for parameter in model.parameters():  # as `get_peft_model` does
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        return model
    kind = AutoConfig.from_pretrained(checkpoint, revision=common["revision"]).model_type
    if kind in STOCK:
        model = model_classes(kind)[1].from_pretrained(checkpoint, label_smoothing=smoothing, **common)
    elif smoothing == 0:
        model = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, **common)
    else:
        raise ValueError(
            f"`model.label_smoothing` with `adapter.method={run.method}` needs one of {tuple(STOCK)}, got {kind!r}. "
            "Set it to 0."
        )
    if run.method == "full":
        return model
    return get_peft_model(model, LoraConfig(task_type=TaskType.SEQ_2_SEQ_LM, **run.adapter))


def states(model: PreTrainedModel | PeftModel) -> dict[str, Any]:
    """What is scored: the model as trained and, where the base is still there, the base."""
    states: dict[str, Any] = {"trained": nullcontext()}
    if isinstance(model, PeftModel):
        states["base"] = model.disable_adapter()
    elif injected_adapters(model):
        states["base"] = _disabled_adapters(model)
    return states


@contextmanager
def _disabled_adapters(model: PreTrainedModel) -> Iterator[None]:
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


if __name__ == "__main__":
    main()
