"""A step of OpusPocus: the word links of every corpus that the step before it has left.

OpusPocus 0.1 imports every file of its folder `opuspocus/pipeline_steps`: put this one there. In a pipeline:

    pipeline:
      steps:
        - step: clean
          step_label: clean
          prev_corpus_step: raw
        - step: align_words
          step_label: links
          prev_corpus_step: clean
          aligner: aligner # folder or Hub name of a word aligner
          parts: 20 # tasks for each corpus, which Slurm runs on several machines

The corpora go on to the next step, with `CORPUS.SOURCE-TARGET.gz` beside them: line n has the links of pair n.
"""

import shutil
import subprocess
from pathlib import Path

from attrs import define, field, validators
from opuspocus.pipeline_steps import register_step
from opuspocus.pipeline_steps.corpus_step import CorpusStep


@register_step("align_words")
@define(kw_only=True)
class AlignWordsStep(CorpusStep):
    """Aligns by `attncal align run --shard`, one task for each part of a corpus."""

    aligner: str = field(converter=str)
    parts: int = field(default=1, validator=validators.ge(1))

    def register_categories(self):
        shutil.copy(self.prev_corpus_step.categories_path, self.categories_path)

    def parts_of(self, corpus):
        return [Path(self.tmp_dir, f"{corpus}.{n:05}-of-{self.parts:05}.gz") for n in range(1, self.parts + 1)]

    def get_command_targets(self):
        return [part for corpus in self.dataset_list for part in self.parts_of(corpus)]

    def command(self, target_file):
        corpus, part, _ = target_file.name.rsplit(".", 2)
        source, target = (Path(self.input_dir, f"{corpus}.{language}.gz") for language in self.languages)
        command = ["attncal", "align", "run", self.aligner, "--source", source, "--target", target]
        shard = ["--shard", f"{int(part[:5])}/{self.parts}", "--output", target_file.with_name(f"{corpus}.{{}}.gz")]
        subprocess.run([*command, *shard], check=True)

    def main_task_postprocess(self):
        for corpus in self.dataset_list:
            with open(Path(self.output_dir, f"{corpus}.{'-'.join(self.languages)}.gz"), "wb") as links:
                for part in self.parts_of(corpus):  # gzip files one after the other are one
                    links.write(part.read_bytes())
        for name in self.dataset_filename_list:
            shutil.copy(Path(self.input_dir, name), self.output_dir)
        super().main_task_postprocess()
