"""Tables of the fine-tuning study: arms, both families of contrasts, what is best, diverged and missing seeds."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from adaptbin.errors import ConfigError, DataError
from sweeps.service.captions_finetune import table_caption
from sweeps.service.methods_finetune import AGAINST, ENCODERS, METHODS, Arm, FinetuneStudy
from sweeps.service.stats import holm, signed_rank_test
from sweeps.service.tables_finetune import COLUMNS, finetune_tables, rows_of_arm, summary_table
from sweeps.service.typeset_finetune import latex, markdown
from tests.service.synthetic import FakeCard, gaining, make_finetune_records, metrics_of, seeds


def tabulate(datasets=("eol",), n=10, scorer=None, drop=0, metrics=None, **options):
    options = {"encoders": ("mlp", "tabnet"), **options}
    study = FinetuneStudy(cards=tuple(FakeCard(key) for key in datasets), seeds=seeds(n), **options)
    records = make_finetune_records(study, scorer or gaining())
    records = records[: len(records) - drop]
    return finetune_tables(records, study, metrics or metrics_of(study), metrics_of(study)), records, study


def losing(*lost):
    """The usual scores, but these (encoder, method, seed) diverged."""

    def score(dataset, encoder, method, seed):
        return None if (encoder, method, seed) in lost else gaining()(dataset, encoder, method, seed)

    return score


def scores_of(records, encoder, method, metric="qwk"):
    pretext = {"supervised": "none", "MR": "mask_xent_value_recon", "BR": "bin_recon", "Ours": None}[method]
    of_arm = [
        record["scores"]["test"].get(metric, np.nan)
        for record in records
        if record["identity"]["hyperparameters"].get("pretext") == pretext
        and record["identity"]["architecture"].get("encoder", "mlp") == encoder
    ]
    return np.array(of_arm)


def test_one_row_per_arm_with_its_scores_and_its_setting():
    tables, records, _ = tabulate(("eol", "bfp"), encoders=ENCODERS)
    table = tables.table
    assert list(table.columns) == list(COLUMNS) and len(table) == 2 * 5 * 4 and len(tables.replicas) == 400
    assert list(table["encoder"].unique()) == list(ENCODERS) and list(table["method"][:4]) == list(METHODS)
    of_eol = [record for record in records if record["identity"]["dataset"] == "eol"]
    for row in table[table["dataset"] == "eol"].to_dict("records"):
        scores = scores_of(of_eol, row["encoder"], row["method"])
        np.testing.assert_allclose([row["mean"], row["sd"]], [scores.mean(), scores.std(ddof=1)])
        assert (row["n"], row["n_diverged"], row["n_missing"], row["chosen"]) == (10, 0, 0, False)
    settings = table.drop_duplicates("method").set_index("method")
    assert list(settings["masking"].fillna("")) == ["", "constant", "none", "none"]
    assert list(settings["t_init"].fillna(0)) == [0, 0, 2, 2]
    assert settings.loc["Ours", "triggers_mean"] == 210 and settings.loc["BR", "triggers_mean"] == 0


@pytest.mark.parametrize(("dataset", "sign"), [("eol", 1), ("bfp", -1)])
def test_contrasts_are_paired_within_an_encoder_and_adjusted_within_a_family(dataset, sign):
    tables, records, _ = tabulate((dataset,))
    contrasts = tables.significance
    assert [(r["encoder"], r["against"], r["method"]) for r in contrasts.to_dict("records")] == [
        (encoder, other, method)
        for encoder in ("mlp", "tabnet")
        for other, methods in AGAINST.items()
        for method in methods
    ]
    metric = metrics_of(tabulate((dataset,))[2])[dataset]
    for _, family in contrasts.groupby(["encoder", "against"], sort=False):
        rows = family.to_dict("records")
        raw = []
        for row in rows:
            arms = [scores_of(records, row["encoder"], name, metric) for name in (row["method"], row["against"])]
            differences = sign * (arms[0] - arms[1])
            np.testing.assert_allclose(row["difference"], differences.mean(), atol=1e-12)
            raw.append(signed_rank_test(np.round(differences, 12)).p)
            assert row["family"] == len(rows) == len(AGAINST[row["against"]])
        np.testing.assert_allclose(family["p"], raw)
        np.testing.assert_allclose(family["p_holm"], holm(np.array(raw)))
    assert set(contrasts["figure_family"]) == {10}
    np.testing.assert_allclose(contrasts["p_holm_figure"], holm(contrasts["p"].to_numpy()))
    ours = contrasts[(contrasts["method"] == "Ours") & (contrasts["against"] == "supervised")]
    assert (ours["difference"] > 0).all() and set(ours["verdict"].str.split(",").str[0]) == {"better"}


def test_marks_of_the_table_repeat_those_of_the_contrasts():
    tables, _, _ = tabulate()
    marks = {(r["encoder"], r["method"], r["against"]): r["mark"] for r in tables.significance.to_dict("records")}
    assert any(marks.values())
    for row in tables.table.to_dict("records"):
        place = row["encoder"], row["method"]
        assert row["mark_supervised"] == marks.get((*place, "supervised"), "")
        assert row["mark_br"] == marks.get((*place, "BR"), "")


def test_the_best_of_an_encoder_has_all_its_seeds():
    def best(scorer=None, drop=0):
        table = tabulate(scorer=scorer, drop=drop)[0].table
        return {(row["encoder"], row["method"]) for row in table[table["is_best"]].to_dict("records")}

    assert best() == {("mlp", "Ours"), ("tabnet", "Ours")}
    assert best(losing(("mlp", "Ours", 3))) == {("mlp", "BR"), ("tabnet", "Ours")}
    assert best(drop=1) == {("mlp", "Ours")}  # tabnet lacks a seed of Ours
    assert best(lambda *_: 0.9) == {(encoder, method) for encoder in ("mlp", "tabnet") for method in METHODS}
    assert best(lambda *_: None) == set()


def test_diverged_seeds_count_and_have_the_worst_rank():
    tables, _, _ = tabulate(scorer=losing(("mlp", "supervised", 0), ("mlp", "Ours", 1)))
    table = tables.table[tables.table["encoder"] == "mlp"].set_index("method")
    assert list(table["n_diverged"]) == [1, 0, 0, 1] and list(table["n"]) == [9, 10, 10, 9]
    rows = tables.significance[tables.significance["encoder"] == "mlp"].set_index(["against", "method"])
    assert rows["n_diverged"].to_dict() == {
        ("supervised", "MR"): 1,
        ("supervised", "BR"): 1,
        ("supervised", "Ours"): 2,
        ("BR", "MR"): 0,
        ("BR", "Ours"): 1,
    }
    assert np.isnan(rows.loc[("supervised", "Ours"), "p_tost"])


def test_missing_seeds_are_told_and_an_encoder_without_any_keeps_its_place_in_the_family_of_all():
    whole, _, _ = tabulate()
    tables, _, _ = tabulate(drop=40)  # all of tabnet
    absent = tables.significance[tables.significance["encoder"] == "tabnet"]
    assert (
        len(absent) == 5 and set(absent["test"]) == {"none"} and set(absent["mark"]) == {""} and not absent["n"].any()
    )
    assert set(tables.significance["figure_family"]) == {10}
    of_mlp = [frame.significance[frame.significance["encoder"] == "mlp"] for frame in (whole, tables)]
    assert (of_mlp[1]["p_holm_figure"] >= of_mlp[0]["p_holm_figure"] - 1e-12).all()
    assert list(tables.table["n_missing"]) == [0] * 4 + [10] * 4 and len(tables.table) == 8
    tables, _, _ = tabulate(drop=12)  # tabnet without Ours, and two seeds less of BR
    rows = tables.significance[tables.significance["encoder"] == "tabnet"].set_index(["against", "method"])
    assert rows.loc[("supervised", "BR"), "note"].startswith("2 of 10 seeds missing")
    assert rows.loc[("supervised", "Ours"), "test"] == "none" and rows.loc[("supervised", "Ours"), "mark"] == ""


@pytest.mark.parametrize(("vary", "test"), [("probe", "none"), ("split", "corrected_t")])
def test_what_seeds_vary_decides_the_test(vary, test):
    tables, _, _ = tabulate(seeds_vary=vary)
    assert set(tables.significance["test"]) == {test}
    assert vary != "probe" or not any(tables.table["mark_supervised"])


def test_another_metric_is_exploratory_and_bad_records_are_errors():
    tables, records, study = tabulate(metrics={"eol": "accuracy"})
    assert set(tables.replicas["role"]) == {"exploratory"} and set(tables.significance["role"]) == {"exploratory"}
    with pytest.raises(ConfigError, match="accurcy"):
        finetune_tables(records, study, {"eol": "accurcy"}, {"eol": "qwk"})
    with pytest.raises(DataError, match="eol: metric 'auc' must be in the record"):
        finetune_tables(records, study, {"eol": "auc"}, {"eol": "qwk"})
    alien = FinetuneStudy(cards=(FakeCard("eol"),), seeds=(77,))
    assert finetune_tables(records, alien, {"eol": "qwk"}, {"eol": "qwk"}).replicas.empty


def test_the_consoles_table():
    tables, _, _ = tabulate(scorer=losing(("mlp", "BR", 3)))
    console = Console(file=io.StringIO(), width=110)
    console.print(summary_table(tables, "eol"))
    shown = console.file.getvalue()
    assert "eol: test QWK (higher is better)" in shown and "9 (†1)" in shown
    row = rows_of_arm(tables.table, "eol", Arm("mlp", "Ours")).iloc[0]
    (line,) = (line for line in shown.splitlines() if "Ours" in line and f"{row['mean']:.4f}" in line)
    contrast = tables.against("supervised").set_index(["encoder", "method"]).loc[("mlp", "Ours")]
    assert line.split()[:4] == ["Ours", "none,", "T_init", "2"] and f"{contrast['difference']:+.4f}" in line
    assert max(map(len, shown.splitlines())) <= 110


def test_both_formats_print_the_tables_numbers_and_marks():
    tables, _, study = tabulate(("eol", "bfp"), scorer=losing(("mlp", "BR", 3)))
    caption = table_caption(tables, study)
    shown = [line.strip("| ").split(" | ") for line in markdown(tables.table, caption).splitlines() if line[:1] == "|"]
    typeset = [
        line.removesuffix(r" \\").split(" & ") for line in latex(tables.table, caption).splitlines() if " & " in line
    ]
    assert shown[0] == ["encoder", "method", "eol<br>QWK ↑", "bfp<br>RMSE ↓"]
    assert typeset[0] == ["Encoder", "Method", "eol", "bfp"]
    names = {"mlp": "MLP", "tabnet": "TabNet"}
    for column, (dataset, scale) in enumerate((("eol", 100), ("bfp", 1)), start=2):
        for number, row in enumerate(tables.table[tables.table["dataset"] == dataset].to_dict("records")):
            line, cells = shown[2 + number], typeset[2 + number]
            assert tuple(line[:2]) == tuple(cells[:2]) == (names[row["encoder"]], row["method"])
            printed = [f"{scale * row[name]:.2f}" for name in ("mean", "sd")]
            assert re.findall(r"\d+\.\d\d", line[column]) == re.findall(r"\d+\.\d\d", cells[column]) == printed
            assert line[column].startswith("**") == cells[column].startswith(r"\textbf") == row["is_best"]
            marks = " ".join(f"{a}{row[m]}" for a, m in (("S", "mark_supervised"), ("B", "mark_br")) if row[m])
            assert marks.replace("*", r"\*") in line[column] and marks.replace("≈", r"$\approx$") in cells[column]
            assert ("†1" in line[column]) == (r"$\dagger$1" in cells[column]) == (row["n_diverged"] == 1)
    assert shown[-3:] == [
        ["MR", *["constant, p_m 0.2"] * 2],
        ["BR", *["none, T 2"] * 2],
        ["Ours", *["none, T_init 2"] * 2],
    ]
    assert latex(tables.table, caption).isascii() and latex(tables.table, caption).count(r"\midrule") == 2
    assert "Marks, S against supervised, B against BR, paired by seed: * p ≤ 0.05" in caption
    assert "†n: n diverged seeds, not in the mean" in caption and "Pretexts of eol, bfp, not tuned" in caption


def test_empty_cells():
    tables, _, _ = tabulate(scorer=losing(*(("mlp", "BR", seed) for seed in range(10))), drop=10)
    lines = [line for line in markdown(tables.table, "").splitlines() if line.startswith(("| MLP", "| TabNet"))]
    assert lines[2] == "| MLP | BR | † |" and lines[7] == "| TabNet | Ours | – |"
