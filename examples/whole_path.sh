#!/bin/sh
# From text to models that others use: train, align, analyze, check, publish, and use them by name from the Hub.
#
#   sh examples/whole_path.sh TEXT SOURCE TARGET OUTPUT OWNER/NAME [setting=value ...]
#   sh examples/whole_path.sh data/multi30k de en runs/path anna/captions training.max_steps=1500
#
# TEXT is a folder with train, dev and test text: train.de, train.en, dev.de, ... Settings are those of the training
# (`average_last=5` is the mean of the last five checkpoints). Everything is published as private.
set -eu
text=$1 source=$2 target=$3 output=$4 name=$5
shift 5
mkdir -p "$output"

# A translation model with gated calibration; its scores on dev and test are in its card.
attncal train --model gated --source "$text/train.$source" --target "$text/train.$target" \
    --dev "$text/dev.$source" "$text/dev.$target" --test "$text/test.$source" "$text/test.$target" --output "$output/model" "$@"
attncal analyze "$output/model" --source "$text/dev.$source" --target "$text/dev.$target" --report "$output/report.html"

# A word aligner that counts, and what it takes for a good translation.
attncal align train --config hmm --source "$text/train.$source" --target "$text/train.$target" --output "$output/aligner"
attncal check learn "$output/aligner" --source "$text/train.$source" --target "$text/train.$target"

# What goes up is listed first.
attncal publish "$output/model" "$name" language="$source,$target" --dry-run
attncal publish "$output/model" "$name" language="$source,$target"
attncal publish "$output/aligner" "$name-aligner" language="$source,$target"

# From here on by name, as anybody else.
attncal translate "$name" --trust-remote-code --source "$text/test.$source" --output "$output/test.$target"
attncal align run "$name-aligner" --source "$text/test.$source" --target "$output/test.$target" --output "$output/links"
attncal check "$name-aligner" --source "$text/test.$source" --target "$output/test.$target" --format summary
