"""How numbers travel, worked out by hand."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from common import records
from common.wire import (
    WireError,
    decode_model,
    decode_update,
    dequantised,
    encode_model,
    encode_update,
    quantised,
    smaller_state,
    to_float16,
)

F32 = np.float32
FLOAT32 = np.dtype(F32)
PARAMETERS = {"w", "b"}


def tensors(**values: Any) -> dict[str, Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


def packed(arrays: Mapping[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(values)) for name, values in arrays.items()})


def numbers(arrays: ArrayRecord) -> dict[str, Any]:
    return {name: (array.dtype, array.numpy().tolist()) for name, array in arrays.items()}


BEFORE = tensors(w=[1.0, 2.0], b=[0.0], mean=[5.0], seen=7)
AFTER = tensors(w=[1.5, -25.0], b=[0.0], mean=[1e6], seen=9)


class TestFloat16:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (0.5, 0.5),
            # Between 1 and 2 the numbers are 2**-10 apart; in the middle the even one wins.
            (1 + 2**-11, 1.0),
            (1 + 3 * 2**-11, 1 + 2 * 2**-10),
            (1 + 2**-11 + 2**-20, 1 + 2**-10),
            (65504.0, 65504.0),
            (65519.0, 65504.0),
            (65520.0, np.inf),
            (-1e30, -np.inf),
            # Denormals are multiples of 2**-24.
            (2**-24, 2**-24),
            (2.6 * 2**-24, 3 * 2**-24),
            (2**-25, 0.0),
            (-0.0, 0.0),
        ],
    )
    def test_it_is_the_nearest_and_ties_go_to_even(self, value: float, expected: float) -> None:
        half = to_float16(F32([value]))
        assert half.dtype == np.float16
        assert half.tolist() == [expected]


class TestQuantised:
    def test_the_largest_number_becomes_127_and_ties_go_to_even(self) -> None:
        # The scale is 127 / 127 = 1.
        steps, scale = quantised(F32([127, 0.5, 1.5, 2.5, -2.5, -0.5, 3.4]))
        assert scale == 1
        assert steps.tolist() == [127, 0, 2, 2, -2, 0, 3]
        assert steps.dtype == np.int8
        assert scale.dtype == F32

    def test_a_negative_number_may_be_the_largest(self) -> None:
        steps, scale = quantised(F32([[-254], [3]]))
        assert scale == 2
        assert steps.tolist() == [[-127], [2]]  # 3 / 2 = 1.5

    def test_the_way_back_is_off_by_half_a_step_at_most(self) -> None:
        values = np.random.default_rng(0).normal(size=1000).astype(F32)
        steps, scale = quantised(values)
        error = np.abs(dequantised(steps, scale, FLOAT32) - values)
        assert 0 < error.max() <= scale * (0.5 + 1e-5)

    def test_zeros_need_no_scale(self) -> None:
        steps, scale = quantised(np.zeros((2, 2), F32))
        assert scale == 0
        assert steps.tolist() == [[0, 0], [0, 0]]
        assert dequantised(steps, scale, FLOAT32).tolist() == [[0, 0], [0, 0]]

    def test_an_array_without_numbers_and_one_without_dimensions(self) -> None:
        assert quantised(np.zeros((0, 3), F32))[0].shape == (0, 3)
        steps, scale = quantised(np.array(254, F32))
        assert (steps.shape, int(steps), scale) == ((), 127, 2)

    def test_denormals_whose_scale_is_none_become_zero(self) -> None:
        # The smallest float32 is 2**-149; 2**-149 / 127 rounds to 0.
        steps, scale = quantised(F32([2**-149, 0]))
        assert scale == 0
        assert steps.tolist() == [0, 0]

    def test_denormals_whose_scale_is_rounded_down_do_not_run_over(self) -> None:
        # 180 / 127 = 1.4 of the smallest float32 is rounded to 1 of it; 180 steps are cut to 127.
        steps, scale = quantised(F32([180 * 2**-149, -180 * 2**-149]))
        assert scale == F32(2**-149)
        assert steps.tolist() == [127, -127]


class TestModel:
    def test_parameters_become_float16_and_all_else_stays(self) -> None:
        model = packed(
            {"w": F32([1 + 2**-11]), "b": np.array([3]), "n.running_var": F32([1e9, 1e-30])}
        )
        for dtype in ("float16", "int8"):
            sent = encode_model(model, {"w", "b"}, dtype)  # type: ignore[arg-type]
            assert numbers(sent) == {
                "w": ("float16", [1.0]),
                "b": ("int64", [3]),
                "n.running_var": ("float32", F32([1e9, 1e-30]).tolist()),
            }

    def test_with_float32_it_is_the_same_object(self) -> None:
        model = packed({"w": F32([1.1])})
        assert encode_model(model, {"w"}, "float32") is model

    def test_it_arrives_in_the_dtypes_of_the_model(self) -> None:
        model = packed({"w": F32([0.1, -3])})
        arrived = decode_model(encode_model(model, {"w"}, "float16"), {"w": torch.zeros(2)})
        # 0.1 lies between 1638 and 1639 times 2**-14, nearer to 1638 (0.0999756).
        assert arrived["w"].dtype == torch.float32
        assert arrived["w"].tolist() == [1638 * 2**-14, -3]

    @pytest.mark.parametrize(
        ("value", "reason"),
        [(65520.0, "'w' holds 65520, a float16"), (np.nan, "'w' holds NaN"), (np.inf, "infinity")],
    )
    def test_what_float16_can_not_hold_is_refused(self, value: float, reason: str) -> None:
        with pytest.raises(WireError, match=reason):
            smaller_state(tensors(w=[1.0, value]), {"w"}, "float16")


class TestUpdate:
    def test_with_float32_the_model_travels_bit_for_bit(self) -> None:
        sent = encode_update(AFTER, BEFORE, PARAMETERS, "float32", {})
        assert numbers(sent.arrays) == numbers(records.to_arrays(AFTER))
        assert sent.residual == {}
        assert decode_update(sent.arrays, packed({}), PARAMETERS, "float32") is sent.arrays

    def test_with_float16_changes_of_parameters_travel_and_values_of_all_else(self) -> None:
        sent = encode_update(AFTER, BEFORE, PARAMETERS, "float16", {})
        assert numbers(sent.arrays) == {
            "w": ("float16", [0.5, -27.0]),
            "b": ("float16", [0.0]),
            "mean": ("float32", [1e6]),
            "seen": ("int64", 9),
        }
        assert sent.residual == {}
        assert numbers(
            decode_update(sent.arrays, records.to_arrays(BEFORE), PARAMETERS, "float16")
        ) == numbers(records.to_arrays(AFTER))

    def test_a_change_that_float16_could_not_show_in_the_weights_arrives(self) -> None:
        # 1 + 2**-14 is 1 in float16; the change alone is a float16 number.
        before = tensors(w=[1.0])
        sent = encode_update(tensors(w=[1 + 2**-14]), before, {"w"}, "float16", {})
        arrived = decode_update(sent.arrays, records.to_arrays(before), {"w"}, "float16")
        assert arrived["w"].numpy().tolist() == [1 + 2**-14]

    def test_the_update_counts_from_what_the_client_received(self) -> None:
        # The server's 1 + 2**-14 travels as 1; the client goes to 1.5. Its step of 0.5 is added
        # to what the server has.
        server = packed({"w": F32([1 + 2**-14])})
        before = decode_model(encode_model(server, {"w"}, "int8"), tensors(w=[0.0]))
        assert before["w"].tolist() == [1.0]
        sent = encode_update(tensors(w=[1.5]), before, {"w"}, "float16", {})
        arrived = decode_update(sent.arrays, server, {"w"}, "float16")
        assert arrived["w"].numpy().tolist() == [1.5 + 2**-14]

    def test_with_int8_each_parameter_has_its_own_scale(self) -> None:
        before = tensors(w=[0.0, 0.0, 0.0], b=[10.0], mean=[5.0])
        after = tensors(w=[254.0, 5.0, 4.5], b=[11.27], mean=[6.0])
        sent = encode_update(after, before, PARAMETERS, "int8", {})
        scale = F32(F32(11.27) - F32(10)) / F32(127)
        assert numbers(sent.arrays) == {
            # 5 / 2 = 2.5 and 4.5 / 2 = 2.25
            "w": ("int8", [127, 2, 2]),
            "b": ("int8", [127]),
            "mean": ("float32", [6.0]),
            records.SCALES: ("float32", [2.0, float(scale)]),
        }
        assert sent.residual["w"].tolist() == [0.0, 1.0, 0.5]
        assert abs(sent.residual["b"][0]) < 1e-6
        arrived = decode_update(sent.arrays, records.to_arrays(before), PARAMETERS, "int8")
        assert arrived["w"].numpy().tolist() == [254, 4, 4]
        assert arrived["b"].numpy()[0] == pytest.approx(11.27)
        assert {array.dtype for array in arrived.values()} == {"float32"}
        assert list(arrived) == ["w", "b", "mean"]

    def test_what_was_rounded_away_is_sent_in_the_next_round(self) -> None:
        # The scale is 1 in each round, and 0.4 alone would be rounded to 0 for ever.
        residual: dict[str, Tensor] = {}
        before, arrived = tensors(w=[0.0, 0.0]), []
        for _ in range(5):
            sent = encode_update(tensors(w=[127.0, 0.4]), before, {"w"}, "int8", residual)
            residual = {"w": torch.from_numpy(sent.residual["w"])}
            arrived.append(int(sent.arrays["w"].numpy()[1]))
        # Before rounding: 0.4, 0.8, 0.2, 0.6, 0.0
        assert arrived == [0, 1, 0, 1, 0]
        assert residual["w"].numpy() == pytest.approx([0, 0], abs=1e-6)

    def test_a_change_too_small_for_a_scale_stays_in_the_residual(self) -> None:
        tiny = 2.0**-149
        sent = encode_update(tensors(w=[tiny]), tensors(w=[0.0]), {"w"}, "int8", {})
        assert sent.arrays["w"].numpy().tolist() == [0]
        assert sent.residual["w"].tolist() == [tiny]

    @pytest.mark.parametrize("dtype", ["float16", "int8"])
    @pytest.mark.parametrize("value", [np.nan, np.inf, -3e38])
    def test_an_update_that_is_not_finite_is_refused(self, dtype: Any, value: float) -> None:
        # -3e38 - 3e38 is no float32.
        with pytest.raises(WireError, match=r"'w' holds NaN or infinity in 1 of 2 places"):
            encode_update(tensors(w=[0.0, value]), tensors(w=[0.0, 3e38]), {"w"}, dtype, {})

    def test_an_update_too_large_for_float16_is_refused_and_int8_takes_it(self) -> None:
        before, after = tensors(w=[0.0]), tensors(w=[1e30])
        with pytest.raises(WireError, match="holds 1e\\+30, a float16 holds up to 65504"):
            encode_update(after, before, {"w"}, "float16", {})
        sent = encode_update(after, before, {"w"}, "int8", {})
        arrived = decode_update(sent.arrays, records.to_arrays(before), {"w"}, "int8")
        assert arrived["w"].numpy()[0] == pytest.approx(1e30)

    def test_only_parameters_that_are_shared_travel(self) -> None:
        sent = encode_update(tensors(b=[127.0]), tensors(b=[0.0]), PARAMETERS, "int8", {})
        assert list(sent.arrays) == ["b", records.SCALES]
        assert sent.arrays[records.SCALES].numpy().tolist() == [1.0]

    def test_it_takes_half_or_a_quarter_of_the_bytes(self) -> None:
        before, after = {"w": torch.zeros(1000)}, {"w": torch.ones(1000)}
        sizes = {
            dtype: len(encode_update(after, before, {"w"}, dtype, {}).arrays["w"].data)
            for dtype in ("float32", "float16", "int8")
        }
        # Each array has a header of 128 bytes.
        assert sizes == {"float32": 4128, "float16": 2128, "int8": 1128}


GOOD = {"w": np.int8([127, 2]), "b": np.int8([0]), "mean": F32([6]), records.SCALES: F32([2, 0])}
BASE = packed({"w": F32([0, 0]), "b": F32([10]), "mean": F32([5])})


def archive() -> Array:
    """Return an array whose bytes are NumPy's format for several."""
    blob = io.BytesIO()
    np.savez(blob, a=F32([0]))
    return Array(dtype="int8", shape=(2,), stype="numpy.ndarray", data=blob.getvalue())


class TestMalformed:
    def test_the_faultless_one_is_taken(self) -> None:
        decoded = decode_update(packed(GOOD), BASE, PARAMETERS, "int8")
        assert numbers(decoded) == {
            "w": ("float32", [254, 4]),
            "b": ("float32", [10]),
            "mean": ("float32", [6]),
        }

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({records.SCALES: None}, r"missing \[':scales'\], extra \[\]"),
            ({"w": None}, r"missing \['w'\]"),
            ({"x": np.int8([1])}, r"extra \['x'\]"),
            ({"w": F32([127, 2])}, r"'w' came as float32\[2\], wire.dtype asks for int8\[2\]"),
            ({"w": np.uint8([127, 2])}, r"'w' came as uint8\[2\]"),
            ({"w": np.int8([[127, 2]])}, r"'w' came as int8\[1, 2\]"),
            ({records.SCALES: F32([2])}, r"':scales' came as float32\[1\], .* float32\[2\]"),
            ({records.SCALES: np.float64([2, 0])}, r"':scales' came as float64\[2\]"),
            ({records.SCALES: F32([2, -1])}, "the scale of array 'b' is -1.0"),
            ({records.SCALES: F32([np.nan, 0])}, "the scale of array 'w' is nan"),
            ({records.SCALES: F32([2, np.inf])}, "the scale of array 'b' is inf"),
        ],
    )
    def test_a_reply_of_another_form_is_refused(self, changes: dict[str, Any], reason: str) -> None:
        arrays = {name: values for name, values in (GOOD | changes).items() if values is not None}
        with pytest.raises(WireError, match=reason):
            decode_update(packed(arrays), BASE, PARAMETERS, "int8")

    @pytest.mark.parametrize("array", [archive(), Array("int8", (2,), "numpy.ndarray", b"?")])
    def test_bytes_that_are_no_array_are_refused(self, array: Array) -> None:
        with pytest.raises(WireError, match="array 'w' can't be read"):
            decode_update(ArrayRecord({**packed(GOOD), "w": array}), BASE, PARAMETERS, "int8")

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_float16_that_is_not_finite_is_refused(self, bad: float) -> None:
        arrays = packed({"w": np.float16([0, bad]), "b": np.float16([0]), "mean": F32([6])})
        with pytest.raises(WireError, match="'w' holds NaN or infinity in 1 of 2"):
            decode_update(arrays, BASE, PARAMETERS, "float16")

    def test_a_scale_that_leads_out_of_float32_gives_infinity_for_admission_to_refuse(
        self,
    ) -> None:
        decoded = decode_update(
            packed(GOOD | {records.SCALES: F32([3e38, 0])}), BASE, PARAMETERS, "int8"
        )
        assert np.isinf(decoded["w"].numpy()).all()
