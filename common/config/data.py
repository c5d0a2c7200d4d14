"""What is learned from: `[data]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from common.config.columns import Categorical, categorical_of, names_of
from common.config.names import is_folder_name
from common.config.settings_table import Fraction, Positive, Table, Whole
from common.config.task import GIVES

SITE_SOURCES = ("folder", "npz", "table", "text")
"""Sources whose examples are the user's own."""

_SIGNAL_SHAPE = r"^([1-9][0-9]{0,3}x[1-9][0-9]{0,5})?$"
_IMAGE_SHAPE = r"^([1-9][0-9]{0,3}x[1-9][0-9]{0,3}x[1-9][0-9]{0,3})?$"
_KIND_OF = {"image_shape": "image", "features": "table", "signal_shape": "signal"}
"""Which kind of `npz` data each setting is the form of."""


Column = Annotated[
    str,
    Field(min_length=1),
    # `-c data.text-column=3` comes as a number.
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
]


class DataSettings(Table):
    """``[data]``: which examples, and how simulated clients share them."""

    source: Literal[
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "heart",
        "shakespeare",
        "folder",
        "npz",
        "table",
        "text",
    ] = Field(
        description="Data set. `digits` is built in; `heart` is UCI heart disease at four "
        "hospitals, which are the clients; `shakespeare` asks for the next character of what a "
        "speaker says, and speakers are the clients; `folder`, `npz`, `table` and `text` are your "
        "own, in each node's data folder."
    )
    partition: Literal["iid", "dirichlet", "classes-per-client", "fedgen-official"] = Field(
        description="How clients with a partition id (all of a simulation) share the training set, "
        "built in or your own: evenly; by Dirichlet(alpha) per label with self-balancing (MOON, "
        "section 4.1); a fixed number of labels per client; or as FedGen's published code does "
        "(cap per label, then Dirichlet). A node without a partition id keeps all of its own data; "
        "a run that sets this is refused there."
    )
    alpha: Positive = Field(
        description="Dirichlet concentration: the smaller, the less alike the clients."
    )
    classes_per_client: Annotated[Whole, Field(ge=1)] = Field(
        description="Labels that one client holds when partition is `classes-per-client`."
    )
    min_partition_size: Annotated[Whole, Field(ge=1)] = Field(
        description="A Dirichlet split is drawn again until every client has this many examples."
    )
    fraction: Fraction = Field(
        description="Part of the training set to use, the same part of every label. For "
        "`fedgen-official` it is that code's sampling ratio."
    )
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="Part of its examples that a client keeps for validation. With a site's own "
        "data each example stays on its side when others come, and the part holds on average."
    )
    client_test: Literal["validation", "global", "official"] = Field(
        description="Evaluation protocol of the clients: `validation`, each its own validation "
        "split; `global`, the whole test set (FedGen paper); `official`, each its own share of the "
        "test examples whose labels it holds, with its own BatchNorm statistics (FedGen's code)."
    )
    augmentation: Literal[
        "none", "crop-flip", "token-dropout", "span-deletion", "neighbour-swap"
    ] = Field(
        description="Training-time augmentation, on the device. Of images: `crop-flip`, "
        "reflection-padded random crop and horizontal flip. Of texts: `token-dropout`, each token "
        "is left out with probability 0.1; `span-deletion`, one span of up to 0.3 of the text is; "
        "`neighbour-swap`, pairs of neighbours change places with probability 0.1."
    )
    speakers: Annotated[Whole, Field(ge=1)] = Field(
        description="Of `shakespeare`: as many clients as these, the speakers who say most."
    )
    client_column: str = Field(
        description="In a simulation with `npz` or `table` data, the array or column that names "
        "the site of each example: one client for each of its values, in the place of "
        "`partition`. Empty: none does."
    )
    kind: Literal["image", "table", "signal", "tokens"] = Field(
        description="What one example of `npz` data is: an image, a row of numbers (a table), a "
        "time series (a signal), or a text as ids (tokens). Other sources have a kind of their own."
    )
    image_shape: Annotated[str, Field(pattern=_IMAGE_SHAPE)] = Field(
        description="Channels x height x width of `folder` and `npz` images, as `1x28x28`. Empty: "
        "what the built-in source has."
    )
    features: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Columns of an `npz` table. 0: the data are something else."
    )
    signal_shape: Annotated[str, Field(pattern=_SIGNAL_SHAPE)] = Field(
        description="Channels x length of `npz` signals, as `3x128`. Empty: the data are something "
        "else."
    )
    target: str = Field(
        description="Column of a `table` that is to be predicted: class labels, or numbers, as "
        "the task says."
    )
    numeric: str = Field(
        description="Columns of numbers of a `table` to learn from, as `age,pressure`. What is "
        "named in none of these settings is not read."
    )
    categorical: str = Field(
        description="Columns of categories of a `table` to learn from: each with its values, or "
        "with a number of buckets into which they are hashed, as `sex=F|M,postcode=#64`."
    )
    standardise: bool = Field(
        description="Whether the numbers of a table, and a signal per channel, are standardised "
        "by mean and standard deviation over all sites. For that each site tells the server the "
        "number, sum and sum of squares of each column of its training examples "
        "(docs/security.md). They are fixed when the experiment begins. false: the model sees "
        "numbers as they are."
    )
    missing: Literal["indicate", "refuse"] = Field(
        description="Missing values in a table (NaN, empty): `indicate`, the mean over all sites "
        "takes their place, and beside every number the model sees whether it is missing; or "
        "`refuse`, the site's data can't be used."
    )
    vocabulary_size: Annotated[Whole, Field(ge=2, le=2**20)] = Field(
        description="Of texts: ids lie below it, 0 is padding. Words are hashed to the others; "
        "with a tokeniser's file, one more than it has tokens."
    )
    max_length: Annotated[Whole, Field(ge=1, le=8192)] = Field(
        description="Of texts: tokens that a model sees; the rest of a text is cut off."
    )
    text_column: Column = Field(
        description="Of `text` data: the name of the column with the text (in JSON lines, of the "
        "member). Or its number from 1, where the file's first line does not name the columns."
    )
    label_column: Column = Field(description="The same, of what is to be predicted.")
    tokenizer: Annotated[str, Field(pattern=r"^([A-Za-z0-9_-][A-Za-z0-9._-]{0,63}\.json)?$")] = (
        Field(
            description="Of `text` data: a file of the library `tokenizers` in "
            "common/data/texts/tokenizers, which travels with the app. Empty: words, hashed."
        )
    )
    tokenizer_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = Field(
        description="Of that file, compared by every site."
    )
    num_classes: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Classes of `folder`, `npz`, `table` and `text` data. 0: what the built-in "
        "source has, or the task learns numbers."
    )
    num_labels: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Labels of a multi-label task (`task.name`): `y` of `npz` data is "
        "`[n, labels]` of 0 and 1. Clients that share one set get examples by their first label. "
        "0: the task is another."
    )
    class_names: str = Field(
        description="Names of the class folders of `folder` data in the order of their class ids, "
        "as `cat,dog`. Sites with other folders are left out; a missing one is a class without "
        "images. Empty: each site's own folders, sorted, which then have to be the same "
        "everywhere. Of `table` and `text` data: the labels as they stand in the files, in that "
        "order; empty: they are whole numbers."
    )
    download: bool = Field(description="Whether a missing data set may be downloaded.")

    @property
    def is_site_data(self) -> bool:
        """Whether the examples are the user's own; a node without a partition holds all of its."""
        return self.source in SITE_SOURCES

    @property
    def classes(self) -> tuple[str, ...]:
        """The names in ``class_names``, in their order; empty where none are given."""
        return tuple(self.class_names.split(",")) if self.class_names else ()

    @property
    def numeric_columns(self) -> tuple[str, ...]:
        """The names in ``numeric``."""
        return names_of(self.numeric)

    @property
    def categorical_columns(self) -> tuple[Categorical, ...]:
        """The columns in ``categorical``."""
        return categorical_of(self.categorical)

    @property
    def names_sites(self) -> bool:
        """Whether the data themselves say which site an example comes from."""
        return self.source in ("heart", "shakespeare") or bool(self.client_column)

    # Validators of fields, not of the table: those would not run while a field is wrong, and all
    # problems are to be said at once. A field that is wrong itself is not in info.data.
    @field_validator("client_test")
    @classmethod
    def _something_to_evaluate_on(cls, value: str, info: ValidationInfo) -> str:
        if value == "validation" and info.data.get("validation_fraction") == 0:
            raise ValueError(
                "'validation' needs data.validation-fraction above 0, or clients have nothing to "
                "evaluate on"
            )
        return value

    @field_validator("class_names")
    @classmethod
    def _one_name_for_each_class(cls, value: str, info: ValidationInfo) -> str:
        names = value.split(",") if value else []
        source = info.data.get("source")
        if names and source not in ("folder", "table", "text", None):
            raise ValueError(
                "only sources 'folder', 'table' and 'text' have class names: leave "
                "data.class-names empty"
            )
        wanted = info.data.get("num_classes")
        if names and wanted is not None and len(names) != wanted:
            raise ValueError(f"{len(names)} names, but data.num-classes is {wanted}")
        allowed = all(name and name == name.strip() for name in names)
        if source == "folder":
            allowed = all(is_folder_name(name) for name in names)
        if len(set(names)) != len(names) or not allowed:
            what = "names of folders" if source == "folder" else "labels"
            raise ValueError(
                f"{what} separated by commas are needed, each once, without spaces around them, as "
                "'cat,dog'"
            )
        return value

    @field_validator("image_shape", "features", "signal_shape")
    @classmethod
    def _form_of_own_data(cls, value: str | int, info: ValidationInfo) -> str | int:
        source, kind = info.data.get("source"), info.data.get("kind")
        wanted = _KIND_OF[str(info.field_name)]
        if source in ("folder", "npz") and kind == wanted and not value:
            raise ValueError(
                f"source {source!r} needs data.image-shape (as '1x28x28'), of a table "
                "data.features, or of signals data.signal-shape (as '3x128'): the server builds "
                "the model without seeing data"
            )
        if source not in (None, "folder", "npz") and value:
            raise ValueError(f"source {source!r} has its own shape: leave it {type(value)()!r}")
        if kind is not None and kind != wanted and value:
            raise ValueError(f"data.kind is {kind!r}, not {wanted!r}: leave it {type(value)()!r}")
        return value

    @field_validator("kind")
    @classmethod
    def _kind_of_the_source(cls, value: str, info: ValidationInfo) -> str:
        source = info.data.get("source")
        if value != "image" and source not in ("npz", None):
            raise ValueError("only source 'npz' has a choice of kinds: leave it 'image'")
        return value

    @field_validator("target", "numeric", "categorical")
    @classmethod
    def _columns_of_a_table(cls, value: str, info: ValidationInfo) -> str:
        source = info.data.get("source")
        if source == "table":
            {"numeric": names_of, "categorical": categorical_of}.get(str(info.field_name), str)(
                value
            )
            if info.field_name == "target" and not value:
                raise ValueError("source 'table' needs the name of the column to predict")
        elif source is not None and value:
            raise ValueError(f"source {source!r} has no columns to choose: leave it empty")
        return value

    @field_validator("categorical")
    @classmethod
    def _each_column_once(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("source") != "table" or not {"target", "numeric"} <= info.data.keys():
            return value
        used = [*names_of(info.data["numeric"]), *(each.name for each in categorical_of(value))]
        if not used:
            raise ValueError("source 'table' needs columns: data.numeric or data.categorical")
        named = [*used, info.data["target"], info.data.get("client_column")]
        twice = sorted({name for name in named if name and named.count(name) > 1})
        if twice:
            raise ValueError(
                f"{', '.join(twice)}: a column is either the target, numeric, categorical or the "
                "client-column"
            )
        return value

    @field_validator("client_column")
    @classmethod
    def _data_that_may_name_sites(cls, value: str, info: ValidationInfo) -> str:
        source = info.data.get("source")
        if value and source not in ("npz", "table", None):
            raise ValueError(
                f"source {source!r} has no such column: leave it empty (it is for 'npz', 'table')"
            )
        if value in ("x", "y") and source == "npz":
            raise ValueError("'x' and 'y' are examples and targets: name a third array")
        return value

    # What the task learns from comes as the context of validation: parse_settings.
    @field_validator("source")
    @classmethod
    def _has_what_the_task_predicts(cls, value: str, info: ValidationInfo) -> str:
        if _task(info) == "multi-label" and value != "npz":
            raise ValueError(
                "its targets are no sets of labels, which the task learns: use data.source='npz'"
            )
        if value not in ("npz", "table", "text") and not _learns_class_labels(info):
            raise ValueError(
                "its targets are class labels, and the task learns numbers: use data.source='npz', "
                "'table' or 'text'"
            )
        return value

    @field_validator("num_labels")
    @classmethod
    def _said_for_sets_of_labels_only(cls, value: int, info: ValidationInfo) -> int:
        if _task(info) == "multi-label" and value < 2:
            raise ValueError(
                "task 'multi-label' needs the number of labels, at least 2: the server builds the "
                "model without seeing data"
            )
        if _task(info) != "multi-label" and value:
            raise ValueError("only task 'multi-label' has sets of labels: leave it 0")
        return value

    @field_validator("num_classes")
    @classmethod
    def _said_for_own_labels_only(cls, value: int, info: ValidationInfo) -> int:
        source = info.data.get("source")
        if source is None:
            return value
        if source not in SITE_SOURCES:
            if value:
                raise ValueError(f"source {source!r} has its own classes: leave it 0")
        elif not _learns_class_labels(info):
            if value:
                learns = "sets of labels" if _task(info) == "multi-label" else "numbers"
                raise ValueError(f"the task learns {learns}, not classes: leave it 0")
        elif value < 2:
            raise ValueError(
                f"source {source!r} needs the number of classes, at least 2: the server builds the "
                "model without seeing data"
            )
        return value

    @field_validator("label_column")
    @classmethod
    def _columns_by_name_or_number(cls, value: str, info: ValidationInfo) -> str:
        text = info.data.get("text_column")
        if text is not None and (text == value or text.isdecimal() != value.isdecimal()):
            raise ValueError(
                f"data.text-column is {text!r}: give two different names, or two different numbers "
                "from 1"
            )
        if "0" in (text, value):
            raise ValueError("columns are numbered from 1")
        return value

    @field_validator("tokenizer_sha256")
    @classmethod
    def _of_a_tokenizer(cls, value: str, info: ValidationInfo) -> str:
        tokenizer = info.data.get("tokenizer")
        if tokenizer and info.data.get("source") not in ("text", None):
            raise ValueError("only source 'text' has a tokeniser: leave data.tokenizer empty")
        if tokenizer is not None and bool(tokenizer) != bool(value):
            raise ValueError(
                "data.tokenizer and data.tokenizer-sha256 go together: give the file's name and "
                "what `sha256sum` says of it, or leave both empty"
            )
        return value

    @field_validator("client_test")
    @classmethod
    def _labels_to_share_by(cls, value: str, info: ValidationInfo) -> str:
        if value == "official" and not _learns_class_labels(info):
            raise ValueError(
                "'official' shares the test set by class labels, and the task has none: use "
                "'validation' or 'global'"
            )
        return value


def _task(info: ValidationInfo) -> str:
    return str((info.context or {}).get("task"))


def _learns_class_labels(info: ValidationInfo) -> bool:
    return "class labels" in GIVES.get(_task(info), ("class labels",))
