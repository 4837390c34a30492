"""One frozen card per data set: nothing about a table is guessed from its values.

Column kinds follow the paper's rule on its fixed split (at most 20 distinct train values: categorical), declared here
so that they cannot change with the split.  Widths, depths and batch sizes: paper (arXiv 2606.19827), Sec. 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from adaptbin.config import Architecture
from adaptbin.errors import ConfigError, unknown
from adaptbin.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Column:
    """One feature of a table."""

    name: str
    kind: Literal["numerical", "categorical"]
    unit: str = ""
    """Physical unit of the file's values; empty when there is none or its source names none."""
    text: bool = False
    """Whether the values are words; all others must parse as finite numbers, categories too."""
    missing: bool = False
    """Whether numbers of a numerical column may be missing (NaN); of words the empty one is a category of its own."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """All that is declared about one data set."""

    key: str
    """Short name, used on the command line and for the folder of its file."""
    title: str
    task: Task
    target: str
    """Header of the label column."""
    columns: tuple[Column, ...]
    """Features in file order."""
    levels: tuple[str, ...] | None
    """Label levels; class code = position here.  Ordinal: from least to most severe.  None for regression."""
    primary_metric: Literal["auc", "accuracy", "qwk", "rmse"]
    """Name in :mod:`adaptbin.metrics` of the score the paper reports."""
    architecture: Architecture
    fingerprint: str
    """SHA-256 (hex) of the parsed table; see :func:`adaptbin.data.table.table_fingerprint`."""
    rows: int
    """Rows of the parsed table, incomplete ones dropped."""
    reader: Literal["csv", "headerless", "cardiotocography", "scikit-learn", "memory", "file"]
    """How a file becomes rows; see :mod:`adaptbin.data.readers`.  "memory": there is none.  "file": an own table, see
    :mod:`adaptbin.data.own`."""
    header: tuple[str, ...]
    """Every column of the file in order, those that are dropped included."""
    licence: str
    doi: str = ""
    files: tuple[str, ...] = ()
    """Names under which the file circulates, the preferred one first; empty for embedded sets."""
    aliases: tuple[tuple[str, str], ...] = ()
    """(header in some file form, our name) pairs."""
    incomplete: str | None = None
    """The one column that may be empty; rows in which it is are dropped."""
    group: str | None = None
    """Column whose values must not be shared between train, validation and test."""
    target_unit: str = ""
    url: str | None = None
    """Archive (zip) that holds the file; None when nobody serves it without an account."""
    page: str = ""
    """Where a person finds the file."""
    notes: str = ""
    """What a reader of a score on this table ought to know."""
    missing_words: tuple[str, ...] = ()
    """Cells of an own table's file that stand for no value, in any case."""

    @property
    def embedded(self) -> bool:
        """Whether the table comes with scikit-learn and needs no file."""
        return self.reader == "scikit-learn"

    @property
    def numerical(self) -> tuple[str, ...]:
        """Names of the D numerical columns, in file order."""
        return tuple(c.name for c in self.columns if c.kind == "numerical")

    @property
    def categorical(self) -> tuple[str, ...]:
        """Names of the C categorical columns, in file order."""
        return tuple(c.name for c in self.columns if c.kind == "categorical")

    def summary(self) -> dict[str, Any]:
        """The card in a dozen JSON-ready values, for manifests and listings."""
        return {
            "key": self.key,
            "title": self.title,
            "task": str(self.task),
            "rows": self.rows,
            "numerical": len(self.numerical),
            "categorical": len(self.categorical),
            "classes": None if self.levels is None else len(self.levels),
            "primary_metric": self.primary_metric,
            "licence": self.licence,
            "doi": self.doi,
            "fingerprint": self.fingerprint,
            "notes": self.notes,
        }


def _numerical(*names: str, unit: str = "") -> tuple[Column, ...]:
    return tuple(Column(name=name, kind="numerical", unit=unit) for name in names)


def _categorical(*names: str, unit: str = "", text: bool = False) -> tuple[Column, ...]:
    return tuple(Column(name=name, kind="categorical", unit=unit, text=text) for name in names)


def _names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(c.name for c in columns)


def _digits(last: int) -> tuple[str, ...]:
    return tuple(str(i) for i in range(1, last + 1))


_UCI = "https://archive.ics.uci.edu"
_CC_BY = "CC BY 4.0"

_ILPD = (
    *_numerical("Age", unit="years"),
    *_categorical("Gender", text=True),
    *_numerical("TB", "DB", "Alkphos", "Sgpt", "Sgot", "TP", "ALB", "AG_Ratio"),
)
_HFC = (
    *_numerical("age", unit="years"),
    *_categorical("anaemia"),
    *_numerical("creatinine_phosphokinase", unit="mcg/L"),
    *_categorical("diabetes"),
    *_categorical("ejection_fraction", unit="%"),
    *_categorical("high_blood_pressure"),
    *_numerical("platelets", unit="kiloplatelets/mL"),
    *_numerical("serum_creatinine", unit="mg/dL"),
    *_numerical("serum_sodium", unit="mEq/L"),
    *_categorical("sex", "smoking"),
    *_numerical("time", unit="days"),
)
_CTG = (
    *_numerical("LB", unit="beats/min"),
    *_numerical("AC", "FM"),
    *_categorical("UC", "DL", "DS", "DP"),
    *_numerical("ASTV", "MSTV", "ALTV", "MLTV", "Width", "Min", "Max"),
    *_categorical("Nmax", "Nzeros"),
    *_numerical("Mode", "Mean", "Median", "Variance"),
    *_categorical("Tendency"),
)
_ESR = _numerical(*(f"X{i}" for i in range(1, 179)))
_EOL = (
    *_categorical("Gender", text=True),
    *_numerical("Age", unit="years"),
    *_numerical("Height", unit="m"),
    *_numerical("Weight", unit="kg"),
    *_categorical("family_history_with_overweight", "FAVC", text=True),
    *_numerical("FCVC", "NCP"),
    *_categorical("CAEC", "SMOKE", text=True),
    *_numerical("CH2O"),
    *_categorical("SCC", text=True),
    *_numerical("FAF", "TUE"),
    *_categorical("CALC", "MTRANS", text=True),
)
_MHR = (
    *_numerical("Age", unit="years"),
    *_categorical("SystolicBP", "DiastolicBP", unit="mmHg"),
    *_numerical("BS", unit="mmol/L"),
    *_categorical("BodyTemp", unit="degrees Fahrenheit"),
    *_categorical("HeartRate", unit="beats/min"),
)
_JITTER = ("Jitter(%)", "Jitter(Abs)", "Jitter:RAP", "Jitter:PPQ5", "Jitter:DDP")
_SHIMMER = ("Shimmer", "Shimmer(dB)", "Shimmer:APQ3", "Shimmer:APQ5", "Shimmer:APQ11", "Shimmer:DDA")
_PT_VOICE = (*_JITTER, *_SHIMMER, "NHR", "HNR", "RPDE", "DFA", "PPE")
_PT = (
    *_categorical("age", unit="years"),
    *_categorical("sex"),
    *_numerical("test_time", unit="days since recruitment"),
    *_numerical(*_PT_VOICE),
)
_BFP = (
    *_numerical("Age", unit="years"),
    *_numerical("Weight", unit="lb"),
    *_numerical("Height", unit="in"),
    *_numerical("Neck", "Chest", "Abdomen", "Hip", "Thigh", "Knee", "Ankle", "Biceps", "Forearm", "Wrist", unit="cm"),
)
_SIZE = ("radius", "texture", "perimeter", "area")
_CELL = (*_SIZE, "smoothness", "compactness", "concavity", "concave points", "symmetry", "fractal dimension")
_BREAST_CANCER = _numerical(
    *(f"mean {name}" for name in _CELL), *(f"{name} error" for name in _CELL), *(f"worst {name}" for name in _CELL)
)
_DIABETES = (
    *_numerical("age", unit="years"),
    *_categorical("sex"),
    *_numerical("bmi", unit="kg/m^2"),
    *_numerical("bp", unit="mmHg"),
    *_numerical("s1", "s2", "s3", "s4", "s5", "s6"),
)

_CTG_EVENTS = ("AC", "FM", "UC", "DL", "DS", "DP")

_ALL = (
    Card(
        key="ilpd",
        title="Indian Liver Patient Dataset",
        task=Task.BINARY,
        target="Selector",
        columns=_ILPD,
        levels=("1", "2"),
        primary_metric="auc",
        architecture=Architecture(width=512, depth=1, batch_size=64),
        fingerprint="edecfabe3f0b23bbcbdcdd49474436a7e8c77548e91df5c7b71e3b3b4db688c4",
        rows=579,
        reader="headerless",
        header=(*_names(_ILPD), "Selector"),
        incomplete="AG_Ratio",
        files=("Indian Liver Patient Dataset (ILPD).csv", "Indian Liver Patient Dataset.csv"),
        licence=_CC_BY,
        doi="10.24432/C5D02C",
        url=f"{_UCI}/static/public/225/ilpd+indian+liver+patient+dataset.zip",
        page=f"{_UCI}/dataset/225",
        notes="Label 1 = liver patient, 2 = not.  The 4 rows without an albumin/globulin ratio are dropped.",
    ),
    Card(
        key="hfc",
        title="Heart Failure Clinical Records",
        task=Task.BINARY,
        target="death_event",
        columns=_HFC,
        levels=("0", "1"),
        primary_metric="auc",
        architecture=Architecture(width=512, depth=5, batch_size=64),
        fingerprint="57feb39035145325739bee4bff2cf12f2f650ed5ca02ac4da0056850722f8f51",
        rows=299,
        reader="csv",
        header=(*_names(_HFC), "death_event"),
        aliases=(("DEATH_EVENT", "death_event"),),
        files=("heart_failure_clinical_records_dataset.csv", "heart_failure.csv"),
        licence=_CC_BY,
        doi="10.24432/C5Z89R",
        url=f"{_UCI}/static/public/519/heart+failure+clinical+records.zip",
        page=f"{_UCI}/dataset/519",
        notes="`time` is the follow-up time, which leaks the outcome; the paper keeps it.",
    ),
    Card(
        key="ctg",
        title="Cardiotocography",
        task=Task.MULTICLASS,
        target="CLASS",
        columns=_CTG,
        levels=_digits(10),
        primary_metric="accuracy",
        architecture=Architecture(width=256, depth=2, batch_size=128),
        fingerprint="5fa6a9e044631a8172505f66948d54a6cf6cd0c611d1efec2ca36793cef1dc84",
        rows=2126,
        reader="cardiotocography",
        # AC FM UC DL DS DP stand in the sheet twice: counts first, rates per second after LB.  A name means its first
        # column, so the features are the counts, as in the released code; UCI's own 21 features are the rates.
        header=("b", "e", *_CTG_EVENTS, "DR", "LB", *_CTG_EVENTS, *_names(_CTG[7:]))
        + ("A", "B", "C", "D", "E", "AD", "DE", "LD", "FS", "SUSP", "CLASS", "NSP"),
        files=("CTG.xls",),
        licence=_CC_BY,
        doi="10.24432/C51S4N",
        url=f"{_UCI}/static/public/193/cardiotocography.zip",
        page=f"{_UCI}/dataset/193",
        notes="AC FM UC DL DS DP are the counts, not UCI's rates per second.",
    ),
    Card(
        key="esr",
        title="Epileptic Seizure Recognition",
        task=Task.MULTICLASS,
        target="y",
        columns=_ESR,
        levels=_digits(5),
        primary_metric="accuracy",
        architecture=Architecture(width=512, depth=4, batch_size=256),
        fingerprint="776f252e02f34bf9c72900fa8f880bf72c7f72001388cea6d8759bb08f70a2a7",
        rows=11500,
        reader="csv",
        header=("Unnamed", *_names(_ESR), "y"),
        aliases=(("", "Unnamed"), ("Unnamed: 0", "Unnamed")),
        files=("Epileptic Seizure Recognition.csv", "data.csv"),
        licence="not stated; see the source",
        doi="10.24432/C5G308",
        page="https://www.kaggle.com/datasets/harunshimanto/epileptic-seizure-recognition (withdrawn at UCI)",
        notes="500 recordings of 23 one-second chunks each; a split by rows leaks between them.",
    ),
    Card(
        key="eol",
        title="Estimation of Obesity Levels",
        task=Task.ORDINAL,
        target="NObeyesdad",
        columns=_EOL,
        levels=("Insufficient_Weight", "Normal_Weight", "Overweight_Level_I", "Overweight_Level_II")
        + ("Obesity_Type_I", "Obesity_Type_II", "Obesity_Type_III"),
        primary_metric="qwk",
        architecture=Architecture(width=128, depth=2, batch_size=128),
        fingerprint="e4ac040067d74573d0c49fda95a59f6ccb377d8ea9080933ed184cb381c6fec1",
        rows=2111,
        reader="csv",
        header=(*_names(_EOL), "NObeyesdad"),
        files=("ObesityDataSet_raw_and_data_sinthetic.csv",),
        licence=_CC_BY,
        doi="10.24432/C5H31Z",
        url=f"{_UCI}/static/public/544/estimation+of+obesity+levels+based+on+eating+habits+and+physical+condition.zip",
        page=f"{_UCI}/dataset/544",
        notes="The label follows from Height and Weight; 77 % of the rows are synthetic, by its authors' account.",
    ),
    Card(
        key="mhr",
        title="Maternal Health Risk",
        task=Task.ORDINAL,
        target="RiskLevel",
        columns=_MHR,
        levels=("low risk", "mid risk", "high risk"),
        primary_metric="qwk",
        architecture=Architecture(width=1024, depth=4, batch_size=64),
        fingerprint="b8b341f0e456d0550f74330c733c3762fb48280e77a1cac7f36e1fbba0291885",
        rows=1014,
        reader="csv",
        header=(*_names(_MHR), "RiskLevel"),
        files=("Maternal Health Risk Data Set.csv",),
        licence=_CC_BY,
        doi="10.24432/C5DP5D",
        url=f"{_UCI}/static/public/863/maternal+health+risk.zip",
        page=f"{_UCI}/dataset/863",
        notes="562 of the 1014 rows are exact duplicates (the paper prints 1013 rows); 35 feature vectors carry more "
        "than one label.",
    ),
    Card(
        key="pt",
        title="Parkinsons Telemonitoring",
        task=Task.REGRESSION,
        target="total_UPDRS",
        target_unit="UPDRS points",
        columns=_PT,
        levels=None,
        primary_metric="rmse",
        architecture=Architecture(width=1024, depth=2, batch_size=128),
        fingerprint="1d65edec6003b5660485747e4a0ae7401de60fd150080950b554dcf4f9cbf593",
        rows=5875,
        reader="csv",
        header=("subject#", "age", "sex", "test_time", "motor_UPDRS", "total_UPDRS", *_PT_VOICE),
        group="subject#",
        files=("parkinsons_updrs.data", "parkinsons_updrs.csv"),
        licence=_CC_BY,
        doi="10.24432/C5ZS3N",
        url=f"{_UCI}/static/public/189/parkinsons+telemonitoring.zip",
        page=f"{_UCI}/dataset/189",
        notes="Split by subject (42), so many validation and test rows have an age never seen in train.",
    ),
    Card(
        key="bfp",
        title="Body Fat Prediction",
        task=Task.REGRESSION,
        target="BodyFat",
        target_unit="%",
        columns=_BFP,
        levels=None,
        primary_metric="rmse",
        architecture=Architecture(width=512, depth=5, batch_size=64),
        fingerprint="b8416aadf02ed86d99512558ea073453bd0623f4dd52d137663d20e62756398b",
        rows=252,
        reader="csv",
        # Density determines BodyFat (Siri's equation), so it is no feature.
        header=("Density", "BodyFat", *_names(_BFP)),
        files=("bodyfat.csv",),
        licence="StatLib: free to distribute, non-commercial use",
        page="https://www.kaggle.com/datasets/fedesoriano/body-fat-prediction-dataset (from StatLib)",
        notes="One row has BodyFat 0; one test row has Height 29.5 in, so RMSE is heavy-tailed.",
    ),
    Card(
        key="breast_cancer",
        title="Breast Cancer Wisconsin (Diagnostic)",
        task=Task.BINARY,
        target="diagnosis",
        columns=_BREAST_CANCER,
        levels=("benign", "malignant"),
        primary_metric="auc",
        architecture=Architecture(width=128, depth=2, batch_size=64),
        fingerprint="19f4bf83e2b5fd7e936fc359c067ae981d2dc50e09a0591e4335695c9ec4e978",
        rows=569,
        reader="scikit-learn",
        header=(*_names(_BREAST_CANCER), "diagnosis"),
        licence=_CC_BY,
        doi="10.24432/C5DW2B",
        page="scikit-learn: load_breast_cancer",
        notes="Not one of the paper's data sets.",
    ),
    Card(
        key="diabetes",
        title="Diabetes Progression",
        task=Task.REGRESSION,
        target="progression",
        columns=_DIABETES,
        levels=None,
        primary_metric="rmse",
        architecture=Architecture(width=128, depth=2, batch_size=64),
        fingerprint="cd8216ef8949bd1344ed526a58101fb9ab009d9136248e62d50a44abd449e8f2",
        rows=442,
        reader="scikit-learn",
        header=(*_names(_DIABETES), "progression"),
        licence="not stated; distributed with scikit-learn",
        page="scikit-learn: load_diabetes",
        notes="Not one of the paper's data sets.  Efron et al., Least Angle Regression, 2004.",
    ),
)

CARDS: Mapping[str, Card] = MappingProxyType({card.key: card for card in _ALL})
"""Every known data set by key: the paper's eight in its order, then the two embedded ones."""


def get_card(name: str) -> Card:
    """Card of the data set ``name``.  Raises ConfigError, naming the nearest known one, when there is none."""
    if name not in CARDS:
        raise ConfigError(unknown("data set", name, CARDS))
    return CARDS[name]
