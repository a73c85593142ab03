"""Searches of other tools, as documents: files that are in use, each from the repository it names.

A file of NNI is a space alone, one of W&B also has the method and the metric. What is here is what
they come to as a document, and what the values of a trial may be by the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import yaml

from flux_ensemble.cli.main import run_command
from flux_ensemble.document.loading import load_text
from flux_ensemble.features.search.model import searches_of
from flux_ensemble.scalars import unpacked

pytest.importorskip("optuna")


def read(value: Any) -> Any:
    """The value of a recording; a number is there as it is written."""
    found = unpacked(value)
    with suppress(ValueError):
        return float(found) if isinstance(found, str) else found
    return found


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == one and type(value) is type(one) for one in values)


def between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and low <= value <= high


def every(low: float, high: float, step: float) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        steps = (value - low) / step
        return low <= value <= high and math.isclose(steps, round(steps), abs_tol=1e-9)

    return fits


#: By repository and file: the keys of the search, the fixed parameters, and what each value is.
FILES: dict[str, tuple[str, Mapping[str, Any], Mapping[str, Callable[[Any], bool]]]] = {
    # choice and uniform
    "microsoft/nni: examples/trials/auto-gbdt/search_space.json": (
        """
        variables:
          num_leaves: [31, 28, 24, 20]
          learning_rate: [0.01, 0.05, 0.1, 0.2]
          bagging_fraction: {low: 0.7, high: 1.0}
          bagging_freq: [1, 2, 4, 8, 10]
        sampler: tpe
        minimize: loss
        """,
        {},
        {
            "num_leaves": one_of(31, 28, 24, 20),
            "learning_rate": one_of(0.01, 0.05, 0.1, 0.2),
            "bagging_fraction": between(0.7, 1.0),
            "bagging_freq": one_of(1, 2, 4, 8, 10),
        },
    ),
    # choices that are texts
    "microsoft/nni: examples/trials/cifar10_pytorch/search_space.json": (
        """
        variables:
          lr: [0.1, 0.01, 0.001, 0.0001]
          optimizer: [SGD, Adadelta, Adagrad, Adam, Adamax]
          model: [vgg, resnet18, googlenet, densenet121, mobilenet, dpn92, senet18]
        sampler: tpe
        maximize: accuracy
        """,
        {},
        {
            "lr": one_of(0.1, 0.01, 0.001, 0.0001),
            "optimizer": one_of("SGD", "Adadelta", "Adagrad", "Adam", "Adamax"),
            "model": one_of(
                "vgg", "resnet18", "googlenet", "densenet121", "mobilenet", "dpn92", "senet18"
            ),
        },
    ),
    # quniform of integers: a range with a step
    "microsoft/nni: examples/trials/systems_auto_tuning/rocksdb-fillrandom/search_space.json": (
        """
        variables:
          write_buffer_size: {low: 2097152, high: 16777216, step: 1048576}
          min_write_buffer_number_to_merge: {low: 2, high: 16, integer: true}
          level0_file_num_compaction_trigger: {low: 2, high: 16, integer: true}
        sampler: tpe
        maximize: rate
        """,
        {},
        {
            "write_buffer_size": every(2097152, 16777216, 1048576),
            "min_write_buffer_number_to_merge": every(2, 16, 1),
            "level0_file_num_compaction_trigger": every(2, 16, 1),
        },
    ),
    # quniform of decimal fractions, as a grid search has them
    "microsoft/nni: examples/trials/efficientnet/search_net.json": (
        """
        variables:
          alpha: {low: 1.0, high: 2.0, step: 0.1}
          beta: {low: 1.0, high: 1.5, step: 0.1}
          gamma: {low: 1.0, high: 1.5, step: 0.1}
        sampler: grid
        maximize: accuracy
        """,
        {},
        {
            "alpha": one_of(*(number / 10 for number in range(10, 21))),
            "beta": one_of(*(number / 10 for number in range(10, 16))),
            "gamma": one_of(*(number / 10 for number in range(10, 16))),
        },
    ),
    # a name with a blank in it, "coef0 ", is no name of a parameter: it has none here
    "microsoft/nni: examples/trials/sklearn/classification/search_space.json": (
        """
        variables:
          C: {low: 0.1, high: 1}
          keral: [linear, rbf, poly, sigmoid]
          degree: [1, 2, 3, 4]
          gamma: {low: 0.01, high: 0.1}
          coef0: {low: 0.01, high: 0.1}
        sampler: gp
        maximize: score
        """,
        {},
        {
            "C": between(0.1, 1),
            "keral": one_of("linear", "rbf", "poly", "sigmoid"),
            "degree": one_of(1, 2, 3, 4),
            "gamma": between(0.01, 0.1),
            "coef0": between(0.01, 0.1),
        },
    ),
    # nested: each layer has a size of its own kind, or none
    "microsoft/nni: examples/trials/mnist-nested-search-space/search_space.json": (
        "sampler: tpe\nmaximize: accuracy\nvariables:\n"
        + "".join(
            f"  layer{number}: [Empty, Conv, Max_pool, Avg_pool]\n"
            f"  kernel{number}: {{choices: [1, 2, 3, 5], when: layer{number} == 'Conv'}}\n"
            f"  pooling{number}: {{choices: [2, 3, 5], "
            f"when: layer{number} == 'Max_pool' or layer{number} == 'Avg_pool'}}\n"
            for number in range(4)
        ),
        {},
        {
            name: fits
            for number in range(4)
            for name, fits in (
                (f"layer{number}", one_of("Empty", "Conv", "Max_pool", "Avg_pool")),
                (f"kernel{number}", one_of(1, 2, 3, 5)),
                (f"pooling{number}", one_of(2, 3, 5)),
            )
        },
    ),
    # bayes, Hyperband with s: 2 and eta: 3, so that the first look is at 27 / 9; a constant
    "wandb/examples: keras/keras-cnn-fashion/sweep-bayes-hyperband.yaml": (
        """
        variables:
          dropout: [0.15, 0.2, 0.25, 0.3, 0.4]
          hidden_layer_size: [96, 128, 148]
          layer_1_size: [10, 12, 14, 16, 18, 20]
          layer_2_size: [24, 28, 32, 36, 40, 44]
          learn_rate: [0.001, 0.01, 0.003]
          decay: [1e-5, 1e-6, 1e-7]
          momentum: [0.8, 0.9, 0.95]
        sampler: gp
        minimize: val_loss
        stop: {policy: hyperband, step: epoch, from: 3, to: 27, eta: 3}
        """,
        {"epochs": 27},
        {
            "dropout": one_of(0.15, 0.2, 0.25, 0.3, 0.4),
            "hidden_layer_size": one_of(96, 128, 148),
            "layer_1_size": one_of(10, 12, 14, 16, 18, 20),
            "layer_2_size": one_of(24, 28, 32, 36, 40, 44),
            "learn_rate": one_of(0.001, 0.01, 0.003),
            "decay": one_of(1e-5, 1e-6, 1e-7),
            "momentum": one_of(0.8, 0.9, 0.95),
            "epochs": one_of(27),
        },
    ),
    # an objective with a slash in its name, min and max without a distribution
    "wandb/examples: colabs/pyg/pointnet-classification/sweep_config.yaml": (
        """
        variables:
          batch_size: [8, 16, 32]
          sample_points: [512, 1024, 2048]
          set_abstraction_ratio_1: {low: 0.1, high: 0.9}
          set_abstraction_radius_1: {low: 0.1, high: 0.5}
          set_abstraction_ratio_2: {low: 0.1, high: 0.9}
          set_abstraction_radius_2: {low: 0.1, high: 0.5}
          dropout: {low: 0.1, high: 0.7}
        sampler: gp
        maximize: Validation/Accuracy
        """,
        {},
        {
            "batch_size": one_of(8, 16, 32),
            "sample_points": one_of(512, 1024, 2048),
            "set_abstraction_ratio_1": between(0.1, 0.9),
            "set_abstraction_radius_1": between(0.1, 0.5),
            "set_abstraction_ratio_2": between(0.1, 0.9),
            "set_abstraction_radius_2": between(0.1, 0.5),
            "dropout": between(0.1, 0.7),
        },
    ),
    # log_uniform has exponents of e; booleans, a constant
    "wandb/examples: fastai1-simpsons/sweep.yaml": (
        f"""
        variables:
          dropout: {{low: 0, high: 1}}
          img_size: [64, 100]
          one_cycle: [true, false]
          batch_size: [8, 16, 32, 64]
          pretrained: [true, false]
          learning_rate: {{low: {math.exp(-11)}, high: {math.exp(-2)}, log: true}}
        sampler: gp
        maximize: accuracy
        """,
        {"epochs": 20},
        {
            "dropout": between(0, 1),
            "img_size": one_of(64, 100),
            "one_cycle": one_of(True, False),
            "batch_size": one_of(8, 16, 32, 64),
            "pretrained": one_of(True, False),
            "learning_rate": between(math.exp(-11), math.exp(-2)),
            "epochs": one_of(20),
        },
    ),
    # a grid of texts and booleans without a metric: its objective is made up
    "wandb/examples: examples/wandb-sweeps/sweeps-boolean-parameters/sweep-bool.yaml": (
        """
        variables:
          optimizer: [sgd, adam]
          flag1: [false, true]
          flag2: [false, true]
        sampler: grid
        minimize: loss
        """,
        {},
        {
            "optimizer": one_of("sgd", "adam"),
            "flag1": one_of(False, True),
            "flag2": one_of(False, True),
        },
    ),
    # int_uniform, categorical, constant, random
    "wandb/examples: examples/wandb-sweeps/sweeps-cross-validation/sweep-cross-validation.yaml": (
        """
        variables:
          batch_size: {low: 32, high: 128, integer: true}
          node_size1: [64, 128, 256]
          node_size2: [64, 128, 256]
          node_size3: [64, 128, 256]
          node_size4: [64, 128, 256]
          node_size5: [64, 128, 256]
          num_layers: [1, 2, 3]
          optimizer: [Adam, Adamax, Adagrad]
        sampler: random
        maximize: val_accuracy
        """,
        {"epochs": 200},
        {
            "batch_size": every(32, 128, 1),
            **{f"node_size{number}": one_of(64, 128, 256) for number in range(1, 6)},
            "num_layers": one_of(1, 2, 3),
            "optimizer": one_of("Adam", "Adamax", "Adagrad"),
            "epochs": one_of(200),
        },
    ),
    # names with dots are names of parameters with underscores here
    "wandb/examples: examples/minimal-hydra-example/wandb_sweep.yaml": (
        """
        variables:
          learning_rate: {low: 1e-5, high: 0.1}
          experiment: [expt001, expt002]
          optimizer: [sgd, adagrad, adam]
        sampler: gp
        minimize: val_loss
        """,
        {},
        {
            "learning_rate": between(1e-5, 0.1),
            "experiment": one_of("expt001", "expt002"),
            "optimizer": one_of("sgd", "adagrad", "adam"),
        },
    ),
}

#: By the variable that another one depends on: which, and for which values it is there.
NESTED = {
    f"layer{number}": {f"kernel{number}": ["Conv"], f"pooling{number}": ["Max_pool", "Avg_pool"]}
    for number in range(4)
}

#: Spaces of which each point is tried once, and how many there are.
WHOLE = {"search_net": 11 * 6 * 6, "sweep-bool": 8}


def document(name: str) -> str:
    """The document of a file, whose jobs publish something that the sampler can learn from."""
    text, fixed, _ = FILES[name]
    search = yaml.safe_load(text)
    numbers = [
        variable
        for variable, given in search["variables"].items()
        if (isinstance(given, dict) and "when" not in given)
        or (isinstance(given, list) and all(type(one) in (int, float) for one in given))
    ]
    memo: dict[str, Any] = {"expression": " + ".join([*numbers[:2], "0"])}
    if "stop" in search:
        memo.update(step="epoch", steps=27)
    objective = search.get("minimize") or search["maximize"]
    words = " ".join(f"--{one}={{{one}}}" for one in (*search["variables"], *fixed))
    trials = next((many for word, many in WHOLE.items() if word in name), 20)
    rest = {
        "name": "translated",
        "seed": 7,
        "jobs": [{"name": "t", "command": f"train {words}", "params": dict(fixed)}],
        "rules": [{"trigger": "start", "action": {"name": "search", "label": "s"}}],
        "simulate": {"t": {"duration": 27, "memo": {objective: memo}}},
    }
    head = f"search:\n  - id: s\n    group: t\n    trials: {trials}\n    parallel: 4\n"
    return yaml.safe_dump(rest) + head + indent(dedent(text), "    ")


@pytest.mark.parametrize("name", FILES)
def test_a_search_of_another_tool_tries_the_values_of_its_file_and_ends(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (search,) = searches_of(load_text(document(name)))
    file = tmp_path / "translated.yaml"
    file.write_text(document(name))
    record = tmp_path / "run.jsonl"
    words = ["simulate", "--nodes", "1", "--cores", "4", "--record", str(record), str(file)]
    assert run_command(words) == 0, capsys.readouterr()
    assert f"{search.trials} complete" in capsys.readouterr().out or search.stop is not None
    events = [json.loads(line).get("event", {}) for line in record.read_text().splitlines()]
    values = [
        {key: read(one) for key, one in point["params"].items()}
        for event in events
        for point in event.get("result", {}).get("points", ())
    ]
    assert len(values) >= search.trials
    fits = FILES[name][2]
    for params in values:
        there = {key for key, one in params.items() if one is not None}
        absent = {
            key
            for variable, keys in NESTED.items()
            for key, wanted in keys.items()
            if variable in params and params[variable] not in wanted
        }
        assert there | FILES[name][1].keys() == fits.keys() - absent
        assert all(fits[key](params[key]) for key in there), params
    if search.trials in WHOLE.values():
        assert len({tuple(params.items()) for params in values}) == search.trials
