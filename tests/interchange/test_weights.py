"""Weights in files: what is read is what was written, and nothing that is read is executed."""

import contextlib
import math
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from transformer.errors import UserError
from transformer.interchange.model import new_output
from transformer.interchange.weights import load_weights, open_weights, save_weights


def test_safetensors_hold_every_parameter_by_its_name(small_model, random_params, tmp_path):
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    model = small_model(norm="pre", positions="learned", attention_bias=True, **layers)
    params, path = random_params(model), tmp_path / "model.safetensors"
    save_weights(path, params)
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["embedding.source"], params.embedding.source)
    w_q = params.decoder.layers.cross_attention.w_q
    np.testing.assert_array_equal(arrays["decoder.layers.cross_attention.w_q"], w_q)
    jax.tree.map(np.testing.assert_array_equal, load_weights(path, model), params)


def test_other_weights_than_the_configs_are_refused(small_model, random_params, tmp_path):
    path = tmp_path / "model.safetensors"
    save_weights(path, random_params(small_model()))
    with pytest.raises(UserError, match="has the shape"):
        load_weights(path, small_model(d_ff=48))
    with pytest.raises(UserError, match="lacks"):
        load_weights(path, small_model(output_bias=True))
    save_weights(path, random_params(small_model(output_bias=True)))
    with pytest.raises(UserError, match="which the model of its config does not have"):
        load_weights(path, small_model())


def test_non_finite_numbers_are_refused(small_model, random_params, tmp_path):
    params, path = random_params(small_model()), tmp_path / "model.safetensors"
    table = params.embedding.source.at[3, 1].set(np.nan)
    save_weights(path, params.replace(embedding=params.embedding.replace(source=table)))
    with pytest.raises(UserError, match=r"embedding\.source contains NaN or an infinite number"):
        load_weights(path, small_model())


@pytest.mark.slow  # needs an extra
@pytest.mark.parametrize("new_format", [True, False])
def test_tensors_of_torch_are_read_without_torch(tmp_path, new_format):
    torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
    base = torch.randn(4, 6)
    tensors = OrderedDict(
        whole=base,
        rows=base[1:3],
        half=base.half(),
        short=base.bfloat16(),
        number=torch.tensor(2.5),
        whole_numbers=torch.arange(5),
        parameter=torch.nn.Parameter(torch.ones(2, 2)),
        nothing=torch.zeros(0, 3),
    )
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=new_format)
    weights = open_weights(path)
    for name, tensor in tensors.items():
        assert weights.shapes[name] == tuple(tensor.shape)
        expected = tensor.detach().float().numpy() if name == "short" else tensor.detach().numpy()
        np.testing.assert_array_equal(weights.read(name), expected)


@pytest.mark.slow  # needs an extra
def test_a_tensor_that_is_not_stored_row_by_row_is_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
    torch.save({"turned": torch.randn(4, 6).T}, tmp_path / "a.bin")
    with pytest.raises(UserError, match="row by row"):
        open_weights(tmp_path / "a.bin")


class Harmful:
    """Its pickle calls os.system."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def archive(path, pickled):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", pickled)
    return path


@pytest.mark.parametrize("in_archive", [True, False])
def test_a_pickle_that_calls_something_calls_nothing(tmp_path, in_archive):
    victim, path = tmp_path / "victim", tmp_path / "pytorch_model.bin"
    pickled = pickle.dumps({"weight": Harmful(f"touch {victim}")}, protocol=2)
    if in_archive:
        archive(path, pickled)
    else:
        path.write_bytes(pickled)
    with pytest.raises(UserError, match=r"refers to posix\.system"):
        open_weights(path)
    assert not victim.exists()


@pytest.mark.parametrize(
    "module, name",
    [("builtins", "eval"), ("torch", "load"), ("numpy", "load"), ("collections", "namedtuple"),
     ("torch._utils", "_rebuild_device_tensor"), ("transformer.interchange.pickled", "Tensor")],
)  # fmt: skip
def test_only_what_tensors_are_made_of_can_be_named(tmp_path, module, name):
    pickled = f"c{module}\n{name}\n(tR.".encode()
    with pytest.raises(UserError, match="refers to"):
        open_weights(archive(tmp_path / "a.bin", pickled))


@pytest.mark.parametrize(
    "pickled, reason",
    [
        (b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.", "is nested too deeply"),
        (b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"K\x01s.", "is nested too deeply"),
        (b"\x80\x02Nr" + struct.pack("<I", 2**28) + b".", "LONG_BINPUT"),
        (pickle.dumps({"a": 1}, protocol=4), "FRAME"),
        (b"\x80\x02]a.", "underflow"),
        (b"\x80\x02" + b"]" * 2**22 + b".", "does not contain tensors"),
        (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.", "attribute"),
    ],
)
def test_a_pickle_that_takes_memory_or_nests_is_refused(tmp_path, pickled, reason):
    with pytest.raises(UserError, match=reason):
        open_weights(archive(tmp_path / "pytorch_model.bin", pickled))


def described(path, offset, shape):
    """A file with a tensor of these sizes, "a", in a storage of four numbers."""

    def tuple_of(numbers):
        return b"(" + b"".join(pickle.dumps(n, protocol=2)[2:-1] for n in numbers) + b"t"

    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    kind = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    storage = kind + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
    sizes = pickle.dumps(offset, protocol=2)[2:-1] + tuple_of(shape) + tuple_of(strides)
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + sizes + b"tR"
    archive(path, b"\x80\x02}X\x01\x00\x00\x00a" + rebuilt + b"s.")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/data/0", np.arange(4, dtype=np.float32).tobytes())
    return path


@pytest.mark.parametrize("offset, shape", [(0, (0, 2**70)), (2**70, (0,)), (0, (1,) * 71)])
def test_a_tensor_of_no_possible_shape_is_refused(tmp_path, offset, shape):
    path = tmp_path / "pytorch_model.bin"
    np.testing.assert_array_equal(open_weights(described(path, 1, (3,))).read("a"), [1, 2, 3])
    with pytest.raises(UserError, match="is not valid"):
        open_weights(described(path, offset, shape))


def test_a_compressed_pickle_is_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
    with pytest.raises(UserError, match="compressed"):
        open_weights(path)


@pytest.mark.parametrize("dtype, reason", [("int8", "type I8"), ("bool", "type BOOL")])
def test_safetensors_of_other_than_floating_point_numbers_are_refused(tmp_path, dtype, reason):
    save_file({"a": np.zeros(3, dtype)}, tmp_path / "a.safetensors")
    with pytest.raises(UserError, match=reason):
        open_weights(tmp_path / "a.safetensors")


def test_numbers_of_any_precision_become_float32(small_model, random_params, tmp_path):
    params, path = random_params(small_model()), tmp_path / "model.safetensors"
    save_weights(path, params)
    wide = {name: array.astype(np.float64) for name, array in load_file(path).items()}
    save_file(wide, path)
    found = load_weights(path, small_model())
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}
    jax.tree.map(np.testing.assert_array_equal, found, params)
    wide["embedding.source"][0, 0] = 1e300
    save_file(wide, path)
    with pytest.raises(UserError, match="NaN or an infinite"):
        load_weights(path, small_model())


@pytest.mark.slow  # needs an extra
def test_bfloat16_is_read(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
    from safetensors.torch import save_file as save_tensors

    tensor = torch.randn(5).bfloat16()
    save_tensors({"a": tensor}, tmp_path / "a.safetensors")
    found = open_weights(tmp_path / "a.safetensors").read("a")
    np.testing.assert_array_equal(found, tensor.float().numpy())


@pytest.mark.slow  # needs an extra
@pytest.mark.parametrize("new_format", [True, False])
def test_a_file_that_is_cut_anywhere_is_refused_or_whole(tmp_path, new_format):
    torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
    path = tmp_path / "pytorch_model.bin"
    torch.save({"a": torch.randn(50)}, path, _use_new_zipfile_serialization=new_format)
    whole_file = path.read_bytes()
    for end in range(0, len(whole_file), 7):
        path.write_bytes(whole_file[:end])
        with pytest.raises(UserError, match=r"cannot read the weights .*pytorch_model\.bin"):
            open_weights(path).read("a")


@given(st.binary(max_size=200))
def test_no_bytes_are_read_as_weights_or_fail_in_another_way(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("bytes")
    archive(folder / "b.bin", content)
    for name, data in [("a.bin", content), ("a.safetensors", content), ("b.bin", None)]:
        if data is not None:
            (folder / name).write_bytes(data)
        with contextlib.suppress(UserError):
            assert open_weights(folder / name).shapes == {}


def test_a_header_that_claims_much_takes_no_memory(tmp_path):
    header = b'{"a":{"dtype":"F32","shape":[1000000,1000000],"data_offsets":[0,4000000000000]}}'
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(UserError, match="cannot read the weights"):
        open_weights(path)
    path.write_bytes(struct.pack("<Q", 2**60) + header)
    with pytest.raises(UserError, match="cannot read the weights"):
        open_weights(path)


def test_output_is_made_whole_or_leaves_nothing(tmp_path):
    def fail_half_way():
        with new_output(tmp_path / "deep" / "new") as folder:
            (folder / "half").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    assert list(tmp_path.iterdir()) == []
    with new_output(tmp_path / "new") as folder:
        (folder / "file").write_text("x")
    assert (tmp_path / "new" / "file").read_text() == "x"
    with pytest.raises(UserError, match="exists"), new_output(tmp_path / "new"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
