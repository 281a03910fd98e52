"""Hostile weights: shapes, bytes, external files (CASES S1, S5, S6, S9, S12)."""

import os

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.unit.frontends.onnx_models import identity_model, model
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

T = onnx.TensorProto


def constant_model(tensor):
    """y = the tensor."""
    proto = model([], {}, ["w"])
    tensor.name = "w"
    proto.graph.initializer.append(tensor)
    return proto


def value_of(source):
    return interpret(import_onnx(source), [])[0]


def refused(source, code):
    with pytest.raises(CompileError) as caught:
        import_onnx(source)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


class TestElements:
    @pytest.mark.parametrize(
        "array",
        [
            np.array([1.5, -2, np.inf], np.float32),
            np.array([1.5, -2, 1e-320]),
            np.array([1.5, -2, 6e-8], np.float16),
            np.array([1.5, -2, 3], ml_dtypes.bfloat16),
            np.array([-128, 127, 0], np.int8),
            np.array([-(2**15), 7, 0], np.int16),
            np.array([-(2**31), 7, 0], np.int32),
            np.array([-(2**63), 2**63 - 1, 0], np.int64),
            np.array([255, 7, 0], np.uint8),
            np.array([65535, 7, 0], np.uint16),
            np.array([2**32 - 1, 7, 0], np.uint32),
            np.array([2**64 - 1, 7, 0], np.uint64),
            np.array([True, False, True]),
            np.array([-8, 7, 3], ml_dtypes.int4),
            np.array([15, 7, 3], ml_dtypes.uint4),
            np.array([1.5, -448, 0.5], ml_dtypes.float8_e4m3fn),
            np.array([1.5, -240, 0.5], ml_dtypes.float8_e4m3fnuz),
            np.array([1.5, -57344, 0.5], ml_dtypes.float8_e5m2),
            np.array([1.5, -57344, 0.5], ml_dtypes.float8_e5m2fnuz),
            np.array([1 + 2j, -3j, 0], np.complex64),
            np.array([1 + 2j, -3j, 0], np.complex128),
        ],
        ids=lambda a: a.dtype.name,
    )
    def test_every_element_type_in_raw_and_typed_fields(self, array):
        raw = numpy_helper.from_array(array)
        typed = helper.make_tensor(
            "w",
            raw.data_type,
            array.shape,
            array.astype(object) if array.dtype.kind == "c" else array,
        )
        for tensor in (raw, typed):
            result = value_of(constant_model(tensor))
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)

    def test_odd_4_bit_tensors_ignore_the_last_nibble(self):
        tensor = T(data_type=T.INT4, dims=[3], raw_data=bytes([0x21, 0xFF]))
        np.testing.assert_array_equal(value_of(constant_model(tensor)).astype(int), [1, 2, -1])

    @pytest.mark.parametrize(
        ("dims", "raw"),
        [([1], b"a" * 4096), ([4], b"a" * 15), ([4], b""), ([0], b"abcd"), ([], b"")],
    )
    def test_bytes_must_fit_the_shape(self, dims, raw):
        refused(constant_model(T(data_type=T.FLOAT, dims=dims, raw_data=raw)), "XC1005")

    def test_packed_4_bit_length_must_fit(self):
        refused(constant_model(T(data_type=T.UINT4, dims=[3], raw_data=b"abc")), "XC1005")

    def test_two_storages_are_refused(self):
        refused(
            constant_model(T(data_type=T.FLOAT, dims=[1], raw_data=b"abcd", float_data=[1.0])),
            "XC1005",
        )

    def test_wrong_typed_field_and_count_are_refused(self):
        refused(constant_model(T(data_type=T.FLOAT, dims=[1], int32_data=[1])), "XC1005")
        refused(constant_model(T(data_type=T.FLOAT, dims=[2], float_data=[1.0])), "XC1005")
        refused(constant_model(T(data_type=T.INT8, dims=[1], int32_data=[300])), "XC1005")

    @pytest.mark.parametrize(
        "dims",
        [[2**32, 2**32], [2**33, 2**33], [-1], [0, 2**62], [2**62, 4], [-(2**63), -1], [2**47]],
    )
    def test_hostile_shapes_are_refused(self, dims):
        refused(constant_model(T(data_type=T.FLOAT, dims=dims, raw_data=b"")), "XC2008")

    @pytest.mark.parametrize("dims", [[2**32, 2**32], [-2], [0, 2**62]])
    def test_hostile_input_shapes_are_refused(self, dims):
        refused(identity_model(dims), "XC2008")

    @pytest.mark.parametrize("code", [T.UNDEFINED, T.STRING, 99])
    def test_unknown_element_types_are_refused(self, code):
        refused(constant_model(T(data_type=code, dims=[1], raw_data=b"abcd")), "XC1012")

    def test_result_of_an_op_that_no_memory_holds_is_refused(self):
        nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2**30], name="big")]
        proto = model(nodes, {"x": [2**20, 1, 2**20]}, ["y"], {"w": np.ones((1, 1, 1), np.float32)})
        assert "'big'" in refused(proto, "XC2008")


class TestSparse:
    def sparse(self, values, indices, dims):
        proto = model([], {}, ["w"])
        tensor = numpy_helper.from_array(np.asarray(values, np.float32), "w")
        places = numpy_helper.from_array(np.asarray(indices, np.int64))
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, places, dims))
        return proto

    def test_both_forms_of_indices_give_the_dense_tensor(self):
        np.testing.assert_array_equal(
            value_of(self.sparse([5, 7], [1, 3], [2, 2])), [[0, 5], [0, 7]]
        )
        np.testing.assert_array_equal(
            value_of(self.sparse([5, 7], [[0, 1], [1, 1]], [2, 2])), [[0, 5], [0, 7]]
        )

    def test_bomb_is_refused(self):
        refused(self.sparse([1], [0], [2**16, 2**16]), "XC1013")

    @pytest.mark.parametrize("indices", [[4], [-1], [[0, 2]], [[2, 0]], [0, 1], [[0]]])
    def test_indices_outside_are_refused(self, indices):
        refused(self.sparse([1], indices, [2, 2]), "XC1005")


class TestExternalData:
    def write(self, folder, entries, dims=(2,)):
        tensor = T(data_type=T.FLOAT, dims=list(dims), data_location=T.EXTERNAL)
        for key, value in entries:
            tensor.external_data.add(key=key, value=value)
        path = folder / "model.onnx"
        path.write_bytes(constant_model(tensor).SerializeToString())
        return path

    def test_slices_of_files_in_the_folder_and_below_are_read(self, tmp_path):
        data = np.arange(6, dtype=np.float32).tobytes()
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "w.bin").write_bytes(b"x" + data)
        entries = [
            ("location", "sub/w.bin"),
            ("offset", "5"),
            ("length", "8"),
            ("checksum", "unused"),
        ]
        np.testing.assert_array_equal(value_of(self.write(tmp_path, entries)), [1, 2])

    def test_length_may_be_absent_and_empty_tensors_may_lie_at_the_end(self, tmp_path):
        (tmp_path / "w.bin").write_bytes(bytes(8))
        assert value_of(self.write(tmp_path, [("location", "./w.bin")])).tolist() == [0, 0]
        assert value_of(
            self.write(tmp_path, [("location", "w.bin"), ("offset", "8")], [0])
        ).shape == (0,)

    @pytest.mark.parametrize(
        "location",
        [
            "../secret.bin", "a/../../secret.bin", "/etc/hostname", "C:\\x", "C:x", "a\\b", "", ".", "..", "a/", "a//b",
            "no\0pe", "missing.bin", "a/missing.bin", "link.bin", "links/w.bin", "hard.bin", "pipe", "folder",
            "x" * 5000,
        ],
    )  # fmt: skip
    def test_other_locations_are_refused(self, tmp_path, location):
        folder = tmp_path / "model"
        (folder / "a").mkdir(parents=True)
        (folder / "folder").mkdir()
        (tmp_path / "secret.bin").write_bytes(bytes(8))
        (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
        (folder / "links").symlink_to(tmp_path)
        (tmp_path / "w.bin").write_bytes(bytes(8))
        os.link(tmp_path / "secret.bin", folder / "hard.bin")
        os.mkfifo(folder / "pipe")
        refused(self.write(folder, [("location", location)]), "XC1004")

    @pytest.mark.parametrize(
        "entries",
        [
            [("offset", "-1")],
            [("offset", "1")],
            [("offset", "9")],
            [("offset", str(2**64))],
            [("offset", "9" * 1000)],
            [("offset", "0x0")],
            [("length", "7")],
            [("length", "16")],
            [("length", "-8")],
            [("offset", "0"), ("offset", "0")],
            [("location", "w.bin")],
            [("__class__", "x")],
        ],
    )
    def test_bad_entries_are_refused(self, tmp_path, entries):
        (tmp_path / "w.bin").write_bytes(bytes(8))
        refused(self.write(tmp_path, [("location", "w.bin"), *entries]), "XC1004")

    def test_model_given_as_bytes_has_no_folder(self, tmp_path):
        (tmp_path / "w.bin").write_bytes(bytes(8))
        path = self.write(tmp_path, [("location", "w.bin")])
        assert "give the path" in refused(path.read_bytes(), "XC1004")


class TestFiles:
    def test_missing_file_folder_and_pipe_are_refused(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "none.onnx", tmp_path, tmp_path / "pipe", "a\0b"):
            refused(path, "XC1001")

    def test_bytes_that_are_no_model_are_refused(self):
        refused(b"", "XC1003")
        refused(b"this is text, not a model", "XC1003")
        refused(onnx.ModelProto(ir_version=8).SerializeToString(), "XC1002")

    def test_every_truncation_of_a_model_is_refused_or_imported(self):
        data, codes = identity_model().SerializeToString(), []
        for end in range(len(data)):
            try:
                import_onnx(data[:end])
            except CompileError as error:
                codes.append(error.code)
        assert all(code.startswith("XC1") for code in codes)

    def nested(self, depth):
        """A model whose graphs are nested `depth` deep; each branch captures the value of the one around it."""
        proto = identity_model()
        proto.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
        inner = helper.make_graph([helper.make_node("Neg", ["x"], [f"y{depth}"])], "b", [], [])
        for level in range(depth, 0, -1):
            inner.output.append(onnx.ValueInfoProto(name=f"y{level}"))
            other = helper.make_graph(
                [helper.make_node("Identity", ["x"], [f"z{level}"])], "b", [], [onnx.ValueInfoProto(name=f"z{level}")]
            )  # fmt: skip
            branch = helper.make_node(
                "If", ["c"], [f"y{level - 1}"], then_branch=inner, else_branch=other
            )
            inner = helper.make_graph([branch], "b", [], [])
        proto.graph.node[0].CopyFrom(branch)
        proto.graph.output[0].name = "y0"
        return proto

    def test_graphs_nested_31_deep_are_read_and_33_deep_are_refused(self):
        module = import_onnx(self.nested(31))
        x = np.array([1, 2], np.float32)
        (taken,) = interpret(module, [x, np.array(True)])
        np.testing.assert_array_equal(taken, -x)
        refused(self.nested(33), "XC1013")

    def test_names_that_break_lines_stay_on_one_line(self):
        proto = identity_model()
        proto.graph.node[0].op_type = "No\nSuch\x1b[31m"
        text = refused(proto, "XC1006")
        assert "\n" not in text and "\x1b" not in text
