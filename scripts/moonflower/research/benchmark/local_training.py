"""Parts a and b: a client's local training, the app's loop next to a bare one."""

from __future__ import annotations

import copy
from collections.abc import Callable

from common.models import SplitModel
from scripts.moonflower.research.benchmark import bare
from scripts.moonflower.research.benchmark.lines import Line, Target
from scripts.moonflower.research.benchmark.measure import Comparison, Prepare, Work, compare
from scripts.moonflower.research.benchmark.one_client import (
    Client,
    app_round,
    bare_fedgen,
    bare_moon,
    open_client,
    plan_of,
    settings_of,
)
from scripts.moonflower.research.benchmark.sizes import Sizes

NEAR_THE_LIMIT = Target("at least", 0.90)


def moon_steps(sizes: Sizes) -> list[Line]:
    """Part a: samples per second of MOON's CIFAR-10 client."""
    lines: list[Line] = []
    for epochs in sizes.epochs:
        lines += [_moon_augmented(sizes, epochs), *_moon_fixed(sizes, epochs)]
    return lines


def _moon_augmented(sizes: Sizes, epochs: int) -> Line:
    overrides = {"train.local-epochs": epochs, "data.augmentation": "crop-flip"}
    settings = settings_of("moon-cifar10", sizes, overrides)
    with open_client(settings, sizes.examples, sizes.device) as client:
        found = compare(
            {
                "app": _trains(client, lambda model: app_round(client, model)),
                "bare": _trains(client, lambda model: bare_moon(client, model, once=False)),
            },
            sizes.repetitions,
        )
        return Line(
            "a",
            f"MOON, augmented inputs, {_epochs(epochs)}: app / bare loop",
            found.speed("app", "bare"),
            NEAR_THE_LIMIT,
            _per_second(found, plan_of(client)),
        )


def _moon_fixed(sizes: Sizes, epochs: int) -> list[Line]:
    overrides = {"train.local-epochs": epochs, "data.augmentation": "none"}
    settings = settings_of("moon-cifar10", sizes, overrides)
    # Terms that are told of an augmentation keep nothing from batch to batch.
    forgetful = settings_of("moon-cifar10", sizes, overrides | {"data.augmentation": "crop-flip"})
    with open_client(settings, sizes.examples, sizes.device) as client:
        found = compare(
            {
                "app": _trains(client, lambda model: app_round(client, model)),
                "app uncached": _trains(
                    client, lambda model: app_round(client, model, begun_with=forgetful)
                ),
                "bare": _trains(client, lambda model: bare_moon(client, model, once=True)),
            },
            sizes.repetitions,
        )
        numbers = _per_second(found, plan_of(client))
    what = f"MOON, fixed inputs, {_epochs(epochs)}"
    gain = Target("at least", 1.3) if epochs >= 10 else None
    return [
        Line("a", f"{what}: app / bare loop", found.speed("app", "bare"), NEAR_THE_LIMIT, numbers),
        Line("a", f"{what}: cached / uncached", found.speed("app", "app uncached"), gain, {}),
    ]


def fedgen_steps(sizes: Sizes) -> list[Line]:
    """Part b: samples per second of FedGen's MNIST client, with both terms of its code."""
    return [
        _fedgen(sizes, f"FedGen, {preset}, {steps} steps", beta, steps)
        for steps in sizes.steps
        for preset, beta in (("published code", 10.0), ("paper's one term", 0.0))
    ]


def _fedgen(sizes: Sizes, what: str, beta: float, steps: int) -> Line:
    overrides = {"train.local-steps": steps, "fedgen.beta": beta}
    settings = settings_of("fedgen-official", sizes, overrides)
    with open_client(settings, sizes.examples, sizes.device) as client:
        found = compare(
            {
                "app": _trains(client, lambda model: app_round(client, model)),
                "bare": _trains(client, lambda model: bare_fedgen(client, model)),
            },
            sizes.repetitions,
        )
        numbers = _per_second(found, plan_of(client))
    return Line(
        "b", f"{what}: app / bare loop", found.speed("app", "bare"), NEAR_THE_LIMIT, numbers
    )


def _trains(client: Client, work: Callable[[SplitModel], object]) -> Prepare:
    """Return what makes a copy of the global model and then lets ``work`` train it."""

    def prepare() -> Work:
        model = copy.deepcopy(client.model)
        return lambda: work(model)

    return prepare


def _per_second(found: Comparison, plan: bare.Plan) -> dict[str, float]:
    samples = plan.steps * plan.batch_size
    return {f"{name} samples/s": samples / found.median(name) for name in found.seconds}


def _epochs(count: int) -> str:
    return f"{count} epoch" if count == 1 else f"{count} epochs"
