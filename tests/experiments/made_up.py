"""Made-up results of experiments."""

import json


def write(results, name: str, run: dict) -> None:
    path = results / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run))


def of_seed(seed: int, setting: str | None = None, **besides) -> dict:
    return {"config": {"training": {"seed": seed}, "setting": setting, **besides}, "wall_seconds": 120 * seed}
