"""The card of an exported model, ``MODEL_CARD.md``: what it is, what it is from and scored, what it is not for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from adaptbin.config import Budget, Finetuning, Hyperparameters, Protocol, pretext_of
from adaptbin.data.cells import MINUS
from adaptbin.data.registry import Card
from adaptbin.metrics import get_metric
from sweeps.service.methods_finetune import ENCODER_TITLES

if TYPE_CHECKING:
    from adaptbin.estimators.model import PretrainedModel

CARD_FILE = "MODEL_CARD.md"

_SHOWN = 12
"""Categories of a column that are listed before it says how many more there are."""

PRETEXT_TITLES = {
    "adaptive_binning": "adaptive binning",
    "adaptive_bin_recon": "indices of adaptive bins",
    "value_recon": "reconstruction of values",
    "mask_xent": "prediction of masks",
    "mask_xent_value_recon": "reconstruction of values and prediction of masks",
    "bin_recon": "indices of fixed bins",
}
"""Pretext -> what a model was pretrained by, in words."""


def model_card(model: PretrainedModel, card: Card, folder: str) -> str:
    """Markdown.  ``model``: with ``origin_``; ``card``: of its data set; ``folder``: name of the model's folder."""
    origin = model.origin_
    sections = {
        "Load it": _loading(model, card, folder),
        "What it is for, and what not": _purpose(model, card),
        "Data": _data(model, card),
        "Training": _training(origin),
        "Scores": _scores(origin),
        "Columns": _columns(model, card),
        "Made with": _made_with(origin),
    }
    tuned = "fine-tuned, " if _is_fine_tuned(origin) else ""
    title = f"# {card.key}: {origin['point']}, {tuned}seed {origin['seed']}\n\n{_what(model, card)}\n"
    return title + "".join(f"\n## {name}\n\n{text.strip()}\n" for name, text in sections.items())


def _is_fine_tuned(origin: Mapping[str, Any]) -> bool:
    return "finetuning" in origin["identity"]


def _what(model: PretrainedModel, card: Card) -> str:
    pretext = pretext_of(model.origin_["identity"])
    encoder = ENCODER_TITLES[model.model_.architecture.encoder]
    how = "not pretrained" if pretext == "none" else f"pretrained by {PRETEXT_TITLES[pretext]}"
    if _is_fine_tuned(model.origin_):
        return (
            f"A whole model, {encoder} and linear head, that tells `{card.target}` of rows of {card.title}: {how}, "
            "then trained on labels."
        )
    return (
        f"An encoder ({encoder}) of rows of {card.title}, {how}, without labels: a row becomes {model.model_.width} "
        "numbers."
    )


def _loading(model: PretrainedModel, card: Card, folder: str) -> str:
    origin = model.origin_
    categories = [*zip(model.columns_.names_of("categorical"), model.columns_.categories, strict=True)]
    words = [name for name, known in categories if isinstance(known.values[0], str)]
    told = f"words = {json.dumps(words, ensure_ascii=False)}\n" if words else ""
    as_words = ", dtype=dict.fromkeys(words, str)" if words else ""
    if card.reader == "file":  # pandas' own words for missing values are others: "None" is one
        missing = sorted({form for word in ("", *card.missing_words, "NaN") for form in (word, word.upper())})
        told += f"missing = {json.dumps(missing, ensure_ascii=False)}\n"
        if findings := [name for name, known in categories if MINUS in missing and MINUS in known.values]:
            told += f"findings = {json.dumps(findings, ensure_ascii=False)}  # where {MINUS!r} is a value\n"
            told += f"values = [word for word in missing if word != {MINUS!r}]\n"
            told += "missing = {name: values if name in findings else missing for name in model.feature_names_in_}\n"
        as_words += ", keep_default_na=False, na_values=missing"
    if words:  # of an own table the empty word says that nothing is there
        as_words += ').fillna(dict.fromkeys(words, "")' if card.reader == "file" else ", keep_default_na=False"
    use = (
        "predictions = model.predict(rows[model.feature_names_in_])"
        if _is_fine_tuned(origin)
        else "embeddings = model.transform(rows[model.feature_names_in_])"
    )
    return (
        "```python\nimport pandas as pd\n\nfrom adaptbin import load\n\n"
        f'model = load("{folder}")  # this folder\n{told}rows = pd.read_csv("rows.csv"{as_words})\n{use}\n```\n\n'
        f"Or, for a file of any size: `python sweeps/embed.py {folder} rows.csv --output embeddings.parquet`. "
        "`model.bin_edges_` has the bins of numerical columns in their own units, `model.columns_` what is fitted of "
        "the columns, `model.origin_` all that stands here and more. Tensors and JSON: loading runs no code."
    )


def _purpose(model: PretrainedModel, card: Card) -> str:
    origin = model.origin_
    rows = origin["n_rows"]
    use = "To embed" if not _is_fine_tuned(origin) else f"To tell `{card.target}` of"
    lines = [
        f"{use} rows with the columns below, measured and coded as in this table.",
        "For research. It is no medical device, and nobody has checked it on other patients, places or years than this "
        "table's.",
        f"One seed and one split: the scores below are those of {rows['test']} test rows, and say nothing of other "
        "seeds. If the point was picked by its test score, that score is too good.",
    ]
    numbers = model.columns_.names_of("numerical")
    if told := [f"`{numbers[at]}`" for at in model.columns_.imputation.indicated]:
        lines.append(
            f"Rows of training lack numbers in {', '.join(told)}: the median stands for them, and the model is told. "
            "In other columns the median stands for a missing number, and nothing tells."
        )
    else:
        lines.append("No row of training lacks a number: for a missing one the median stands, and nothing tells.")
    if origin["unseen"]:
        counts = ", ".join(f"{name} ({found['test']} test rows)" for name, found in origin["unseen"].items())
        lines.append(f"Some rows hold categories that no training row has: {counts}.")
    code = "the code of the first category" if model.columns_.unseen_category == "zero" else "a code of their own"
    lines.append(f"Categories that training never saw get {code}, about which it has learned nothing.")
    lines.append(
        "The folder tells means, spreads and bin edges of the training rows, and every category there is among them: "
        "it may go where these may go."
    )
    lines += [card.notes] if card.notes else []
    return _bullets(lines)


def _data(model: PretrainedModel, card: Card) -> str:
    origin = model.origin_
    rows, target = origin["n_rows"], origin["target"]
    levels = f", levels in order: {', '.join(target['levels'])}" if target["levels"] else ""
    unit = f" ({target['unit']})" if target["unit"] else ""
    unlabelled = f", {rows['unlabelled']} without a label, pretrained on only" if "unlabelled" in rows else ""
    return _bullets(
        [
            f"{card.title} (`{card.key}`), {card.rows} rows: {rows['train']} train, {rows['val']} validation, "
            f"{rows['test']} test{unlabelled}.",
            f"{len(card.numerical)} numerical and {len(card.categorical)} categorical columns; label `{target['name']}`"
            f"{unit}, {card.task}{levels}.",
            f"Fingerprint of the parsed table: `{card.fingerprint}`.",
            *([f"Licence: {card.licence}."] if card.licence else []),
            *([f"DOI: {card.doi}."] if card.doi else []),
        ]
    )


def _training(origin: Mapping[str, Any]) -> str:
    identity = origin["identity"]
    point = {**Hyperparameters().to_dict(), **identity["hyperparameters"]}
    architecture = {"encoder": "mlp", **identity["architecture"]}
    lines = [f"Seed {origin['seed']}, which varies: {identity['seeds_vary']}. Replica `{origin['replica']}`."]
    if identity["budget"]["epochs"]:
        lines += [f"Pretraining, {identity['budget']['epochs']} epochs: {_pairs(point)}."]
    if _is_fine_tuned(origin):
        told = origin["finetuning"]
        lines.append(f"Fine-tuning: {_pairs(identity['finetuning'])}; ended after {told['epochs']} ({told['ended']}).")
    else:
        budget = {name: value for name, value in identity["budget"].items() if name != "epochs"}
        lines.append(f"Linear probes, for the scores only: {_pairs(budget)}.")
    lines.append(f"Architecture: {_pairs(architecture)}.")
    lines.append(f"Protocol: {_departures(identity)}.")
    return _bullets(lines)


def _departures(identity: Mapping[str, Any]) -> str:
    """What of the protocol and of the amount of training is not the paper's."""
    parts = ((Protocol(), "protocol", ""), (Budget(), "budget", ""), (Finetuning(), "finetuning", "fine-tuning "))
    told = [what + change for usual, part, what in parts for change in _changes(usual, identity.get(part, {}))]
    return f"the paper's, but for {', '.join(told)}" if told else "the paper's"


def _changes(usual: Any, got: Mapping[str, Any]) -> list[str]:
    return [
        f"{field.name} {got[field.name]} ({getattr(usual, field.name)})"
        for field in fields(usual)
        if field.name in got and got[field.name] != getattr(usual, field.name)
    ]


def _scores(origin: Mapping[str, Any]) -> str:
    scores, errors = origin["scores"], origin["test_bootstrap_se"]
    names = sorted(scores["test"], key=lambda name: name != origin["metric"])
    lines = [
        [
            f"**{get_metric(name).label}**" if name == origin["metric"] else get_metric(name).label,
            f"{scores['val'][name]:.4f}",
            f"{scores['test'][name]:.4f}",
            f"{errors[name]:.4f}" if name in errors else "",
        ]
        for name in names
    ]
    of = "the model at its best epoch on validation" if _is_fine_tuned(origin) else "linear probes, their mean"
    return (
        _table(["metric", "validation", "test", "bootstrap SE of test"], lines)
        + f"\n\nOf {of}. Validation chose the epoch, test was read once after it. The standard error is over test rows "
        "alone: another seed or split differs by more. The primary metric is in bold."
    )


def _columns(model: PretrainedModel, card: Card) -> str:
    columns, units = model.columns_, {column.name: column.unit for column in card.columns}
    numbers = dict(zip(columns.names_of("numerical"), range(len(columns.names)), strict=False))
    known = dict(zip(columns.names_of("categorical"), columns.categories, strict=True))
    lines = []
    for name in columns.names:
        if name in numbers:
            scale, at = columns.standardisation, numbers[name]
            edges = model.bin_edges_.get(name)
            bins = "" if edges is None else f"; {len(edges) + 1} bins"
            holds = f"mean {scale.mean[at]:.6g}, sd {scale.sd[at]:.6g}{bins}"
        else:
            values = [_category(value) for value in known[name].values]
            more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            holds = ", ".join(values[:_SHOWN]) + more
        lines.append([f"`{name}`", "numerical" if name in numbers else "categorical", units[name], holds])
    return _table(["column", "kind", "unit", "what training saw"], lines)


def _category(value: Any) -> str:
    if value in ("", None):
        return "*missing*"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made_with(origin: Mapping[str, Any]) -> str:
    on = origin["trained_on"]
    versions = ", ".join(f"{name} {version}" for name, version in (on["versions"] or {}).items())
    git = on["git"] or {}
    commit = f", commit {git['sha']}{' with changes' if git['dirty'] else ''}" if git.get("sha") else ""
    method = origin["identity"]["method_version"]
    return _bullets(
        [
            f"{versions}{commit}; method version {method}.",
            f"Trained with {on['kernels']} on {on['device']} ({on['host']['cpu']}), exported {origin['exported_at']}.",
            "Method: *When, Where, and How: Adaptive Binning for Tabular Self-Supervised Learning*, arXiv 2606.19827.",
        ]
    )


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)
