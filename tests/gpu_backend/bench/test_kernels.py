import csv
import json

import pytest
import torch

from gpu_backend.bench import kernels
from gpu_backend.bench.contenders import OURS
from gpu_backend.bench.inputs import DECODE, PREFILL, SERVING, TINY, make_inputs
from kvsim.errors import ConfigError
from tests.gpu_backend.doubles import on_a_cpu


def rows(path):
    return list(csv.DictReader(path.open(encoding="utf-8")))


@on_a_cpu
def test_tiny_shapes_on_a_cpu(tmp_path, capsys):
    output = tmp_path / "kernels.csv"
    assert kernels.main(["--device", "cpu", "--repeats", "1", "--output", str(output)]) == 0
    found = rows(output)
    assert [(row["phase"], row["backend"]) for row in found] == [
        ("decode", "triton_paged"),
        ("decode", "triton_contiguous"),
        ("serving", "triton_paged"),
        ("serving", "triton_contiguous"),
        ("prefill", "triton_paged"),
        ("prefill", "triton_contiguous"),
        ("prefill", "sdpa"),
    ]
    assert not any(row["error"] for row in found)
    times = [float(row["median_us"]) for row in found]
    assert not any(row["speedup"] for row in found[:4] + found[6:])  # decode has no peer here
    assert float(found[4]["speedup"]) == pytest.approx(times[6] / times[4], abs=1e-3)
    assert all(float(row["rel_error"]) < 1e-5 and float(row["median_us"]) > 0 for row in found)
    facts = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
    assert facts["command"][-1] == str(output) and facts["device"] == "cpu"
    assert facts["torch"] == torch.__version__ and facts["copy_TBps"] > 0
    assert "triton_paged" in capsys.readouterr().out


@on_a_cpu
def test_the_paging_sweep(tmp_path):
    output = tmp_path / "paging.csv"
    assert kernels.main(["--device", "cpu", "--repeats", "1", "--sweep", "paging", "--output", str(output)]) == 0
    (row,) = rows(output)
    assert (row["batch"], row["max_context"], row["block_size"]) == ("8", "64", "16")
    assert float(row["overhead"]) == pytest.approx(float(row["paged_us"]) / float(row["contiguous_us"]) - 1, abs=1e-3)


def test_speedup_over_the_fastest_peer(monkeypatch):
    times = {"": 8.0, "a": 12.0, "b": 10.0}

    def measure(contender, *_):
        if contender.peer not in times:
            raise RuntimeError("not built")
        return {"median_us": times[contender.peer]}

    monkeypatch.setattr(kernels, "measure", measure)
    rivals = [OURS[0]._replace(peer=peer) for peer in ("", "a", "b", "c")]
    found = list(kernels.compare([(TINY[0], rivals)], torch.device("cpu"), torch.float32, 1, 1.0))
    assert [row["speedup"] for row in found] == [1.25, "", "", ""]
    assert [row["error"] for row in found] == ["", "", "", "RuntimeError: not built"]


def test_inputs_that_fail_are_rows(monkeypatch):
    monkeypatch.setattr(kernels, "make_inputs", lambda *_, **__: 1 / 0)
    found = list(kernels.compare([(TINY[0], OURS), (TINY[1], OURS)], torch.device("cpu"), torch.float32, 1, 1.0))
    assert [row["error"] for row in found] == ["ZeroDivisionError: division by zero"] * 4


@on_a_cpu
def test_a_kernel_that_fails_is_a_row(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setattr(kernels, "measure", fail)
    output = tmp_path / "kernels.csv"
    kernels.main(["--device", "cpu", "--rows", "decode", "--peers", "none", "--output", str(output)])
    assert [row["error"] for row in rows(output)] == ["RuntimeError: no such kernel"] * 2
    assert [row["median_us"] for row in rows(output)] == ["", ""]


@pytest.mark.parametrize("arguments", [["--rows", "both"], ["--peer", "none"], ["--device", "tpu"]])
def test_wrong_usage_is_one_line(arguments):
    with pytest.raises(ConfigError) as raised:
        kernels.main(arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("repeats", ["0", "10001", "x", "1.5"])
def test_repeats_are_whole_and_few(repeats):
    with pytest.raises(ConfigError, match=f"--repeats: '{repeats}': must be a whole number from 1 to 10000"):
        kernels.main(["--repeats", repeats])


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "is a folder"), ("none/k.csv", "there is no folder"), ("k.json", "the JSON file"), ("j.csv", "is a folder")],
)
def test_an_output_that_cannot_be_written_is_told_before_measuring(tmp_path, monkeypatch, name, message):
    monkeypatch.setattr(kernels, "copy_bandwidth", lambda _: pytest.fail("measured"))
    (tmp_path / "j.json").mkdir()
    with pytest.raises(ConfigError, match=f"--output=.*{message}"):
        kernels.main(["--device", "cpu", "--output", str(tmp_path / name)])
    assert [path.name for path in tmp_path.iterdir()] == ["j.json"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_no_cpu_beside_a_gpu():
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES="):
        kernels.main(["--device", "cpu"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda_device():
    with pytest.raises(ConfigError, match="needs a CUDA device, .* sees none; --device cpu"):
        kernels.main([])


def test_quick_takes_one_shape_a_phase():
    shapes = DECODE + SERVING + PREFILL
    assert kernels.select("all", shapes, quick=True) == [DECODE[0], SERVING[0], PREFILL[0]]
    assert kernels.select("prefill", shapes, quick=False) == list(PREFILL)


def test_contexts_of_a_server():
    shape = SERVING[-1]._replace(num_q_heads=1, num_kv_heads=1, head_dim=4)
    lengths = make_inputs(shape, device=torch.device("cpu"), dtype=torch.float32).seq_lens
    assert len(lengths) == 128 and lengths == sorted(lengths, reverse=True)
    assert 350 < sum(lengths) / 128 < 550 and lengths[0] <= 2048
    assert lengths[64] < 0.8 * sum(lengths) / 128  # the mean is far above the median


def test_inputs_are_ragged_seeded_and_counted():
    shape = DECODE[0]._replace(num_q_heads=2, num_kv_heads=1, head_dim=16, max_context=64)
    cpu = torch.device("cpu")
    inputs, again = (make_inputs(shape, device=cpu, dtype=torch.float32) for _ in range(2))
    assert inputs.seq_lens == sorted(again.seq_lens, reverse=True) and torch.equal(inputs.q_THD, again.q_THD)
    assert all(32 <= length <= 64 for length in inputs.seq_lens) and len(set(inputs.seq_lens)) > 10
    assert inputs.kv_bytes == sum(inputs.seq_lens) * 2 * 16 * 4
    first, second = (set(batch.block_tables.flatten().tolist()) for batch in inputs.scattered)
    assert not first & second and len(first | second) == 2 * 32 * 4
