"""`attncal publish`: a model, adapter or aligner, a page, or a metric goes to the Hub."""

import argparse
from pathlib import Path

from .common import user_errors


def add_publish(commands: argparse._SubParsersAction) -> None:
    """Add the command `publish`."""
    parser = commands.add_parser(
        "publish",
        help="publish a model, an adapter, an aligner, or a page on the Hugging Face Hub",
        description="Upload the folder of a model, an adapter, an aligner or a tuned encoder in one commit, with a "
        "complete card. Only the files that a model needs go up. What a training leaves for itself stays behind; any "
        "other file, a path of this machine or your user name is refused. The folder must load in a process without "
        "this package. Publishing the same folder again changes nothing, and an upload that was cut off goes on.",
        epilog="examples:\n"
        "  attncal publish runs/gated owner/name --dry-run\n"
        "  attncal publish runs/gated owner/name --license apache-2.0 --language de en --public\n"
        "  attncal publish runs/adapter owner/name --base-model Helsinki-NLP/opus-mt-de-en\n"
        "  attncal publish report.html owner/name --space",
    )
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="what was saved or trained; with --space an .html page, or the folder of a metric for evaluate",
    )
    parser.add_argument("repository", metavar="OWNER/NAME", help="it is made if it does not exist")
    parser.add_argument("--dry-run", action="store_true", help="check and list the files, without the network")
    parser.add_argument("--public", action="store_true", help="make a new repository public (default: private)")
    parser.add_argument("--space", action="store_true", help="publish a page, or a metric, as a static Space")
    parser.add_argument("--title", metavar="TEXT", help="title of the Space; without it, its name")
    parser.add_argument(
        "--leave-out",
        nargs="+",
        metavar="NAME",
        help="further files that stay behind, as NAME or *.txt; without it, none",
    )
    parser.add_argument(
        "--try-loading",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="first load the folder in a process without this package",
    )
    card = parser.add_argument_group("the card")
    card.add_argument(
        "--license", metavar="NAME", help="as the Hub writes it (apache-2.0); without it, that of the card"
    )
    card.add_argument(
        "--language",
        nargs="+",
        metavar="CODE",
        help="of the text, source first (de en); without it, those of the card",
    )
    card.add_argument(
        "--dataset",
        nargs="+",
        metavar="ID",
        help="datasets of the Hub that it was trained and tested on; without it, those of the card",
    )
    card.add_argument(
        "--base-model",
        metavar="NAME",
        help="name on the Hub of what an adapter or an encoder began as; without it, that of the card",
    )
    parser.set_defaults(run=_run_publish)


def _run_publish(options: argparse.Namespace) -> None:
    from hf_attncal.hub import PublishError, publish, publish_metric, publish_page

    common = {"private": not options.public, "dry_run": options.dry_run}
    with user_errors(PublishError):
        if options.space:
            title = options.title or options.repository.partition("/")[2]
            publish_as = publish_metric if Path(options.folder).is_dir() else publish_page
            done = publish_as(options.folder, options.repository, title=title, **common)
        else:
            done = publish(
                options.folder,
                options.repository,
                license=options.license,
                languages=options.language or (),
                datasets=options.dataset or (),
                base_model=options.base_model,
                leave_out=options.leave_out or (),
                try_loading=options.try_loading,
                **common,
            )
    for name, size in done.files.items():
        print(f"{size:>13,}  {name}")
    print(f"{sum(done.files.values()):>13,}  bytes in {len(done.files)} files")
    if done.left_out:
        print(f"left out: {', '.join(done.left_out)}")
    if done.missing:
        options_of = {"license": "--license", "language": "--language"}
        print("the card does not say: " + ", ".join(f"{name} ({options_of[name]})" for name in done.missing))
    if done.commit is None:
        print(f"{done.repository} would hold these files. Nothing was sent.")
    else:
        print(f"{done.url} {'holds them' if done.changed else 'held them already'}: commit {done.commit}")
