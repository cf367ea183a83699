"""Table of the commands and their functions; `hf_attncal` exports the functions under their own names."""

COMMANDS = {
    "adapt": "hf_attncal.commands.adapt:adapt",
    "align calibrate": "hf_attncal.commands.align_annotated:calibrate",
    "align compare": "hf_attncal.commands.align_linked:compare",
    "align lexicon": "hf_attncal.commands.align_linked:lexicon",
    "align project": "hf_attncal.commands.align_linked:project",
    "align select": "hf_attncal.commands.align_annotated:select",
    "align train": "hf_attncal.commands.align_train:train_aligner",
    "analyze": "hf_attncal.commands.analyze:analyze",
    "align quick": "hf_attncal.commands.align_quick:align_quick",
    "align run": "hf_attncal.commands.align:align",
    "check": "hf_attncal.commands.check:check",
    "check compare": "hf_attncal.commands.check_learn:check_compare",
    "check learn": "hf_attncal.commands.check_learn:check_learn",
    "check test": "hf_attncal.commands.check_learn:check_test",
    "demo": "hf_attncal.commands.demo:demo",
    "export": "hf_attncal.commands.export:export",
    "import": "hf_attncal.commands.import_marian:import_marian",
    "publish": "hf_attncal.commands.publish:publish",
    "score": "hf_attncal.commands.score:score",
    "show": "hf_attncal.commands.show:show",
    "summarize": "hf_attncal.commands.summarize:summarize",
    "times": "hf_attncal.commands.times:times",
    "train": "hf_attncal.commands.train:train",
    "translate": "hf_attncal.commands.translate:translate",
}
# `job` of a file of settings -> class of the job.
JOBS = {
    "translation": "hf_attncal.training.translation:TranslationJob",
    "summarization": "hf_attncal.training.summarization:SummarizationJob",
    "adapter": "hf_attncal.training.adapter:AdapterJob",
    "aligner": "hf_attncal.alignment.aligner_job:AlignerJob",
    "language": "hf_attncal.training.language:LanguageJob",
}
