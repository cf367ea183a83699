#!/bin/sh
#SBATCH --job-name=align
#SBATCH --array=1-20
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --time=12:00:00
#SBATCH --requeue
# Align a corpus on several machines: each task of a Slurm array aligns one part. In a clone or with the package
# installed, on a file system that all machines see:
#
#   sbatch examples/align_array.sh ALIGNER SOURCE TARGET FOLDER
#   cat FOLDER/links.*-of-00020.gz > links.gz    # once all tasks are done
#
# Tasks that failed can be sent again (`--array=3,17`); a part that is there already is refused. For another number of parts:
#
#   PARTS=100 sbatch --array=1-100 examples/align_array.sh ALIGNER SOURCE TARGET FOLDER
set -eu
aligner=$1 source=$2 target=$3 folder=$4
mkdir -p "$folder"
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
exec attncal align run "$aligner" --source "$source" --target "$target" \
    --shard "$SLURM_ARRAY_TASK_ID/${PARTS:-20}" --output "$folder/links.{}.gz"
