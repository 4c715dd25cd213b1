"""ModelSpec, HardwareSpec and the number of KV blocks, on the files of conf/."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kvsim.errors import ConfigError
from kvsim.specs import GIB, HardwareSpec, ModelSpec, load_model, num_kv_blocks

CONF = Path(__file__).parents[1] / "conf"

# Parameters (those of the published checkpoints; opt-66b, opt-175b and the GQA variant from their shapes), KV bytes.
MODELS = {
    "opt-125m": (125_239_296, 36_864),
    "opt-1.3b": (1_315_758_080, 196_608),
    "opt-13b": (12_853_473_280, 819_200),
    "opt-66b": (65_719_701_504, 2_359_296),
    "opt-175b": (174_604_468_224, 4_718_592),
    "llama-13b": (13_015_864_320, 819_200),
    "llama-2-7b": (6_738_415_616, 524_288),
    "llama-2-13b": (13_015_864_320, 819_200),
    "llama-2-13b-gqa": (11_443_000_320, 204_800),
    "llama-3-8b": (8_030_261_248, 131_072),
    "llama-3-70b": (70_553_706_496, 327_680),
    "llama-3.2-1b": (1_235_814_400, 32_768),
    "yi-6b": (6_061_035_520, 65_536),
    "yi-34b": (34_388_917_248, 245_760),
    "smollm2-135m": (134_515_008, 23_040),
}
CARDS = ("a100-40gb", "a100-80gb", "h100", "h200")


def model(name: str, **changes: Any) -> ModelSpec:
    spec = instantiate(OmegaConf.merge(OmegaConf.load(CONF / "model" / f"{name}.yaml"), changes))
    assert isinstance(spec, ModelSpec)
    return spec


def hardware(name: str, **changes: Any) -> HardwareSpec:
    spec = instantiate(OmegaConf.merge(OmegaConf.load(CONF / "hardware" / f"{name}.yaml"), changes))
    assert isinstance(spec, HardwareSpec)
    return spec


def write_config(folder: Path, **fields: Any) -> str:
    (folder / "config.json").write_text(json.dumps(fields))
    return str(folder / "config.json")


def test_every_option_is_listed_here() -> None:
    assert {file.stem for file in (CONF / "model").glob("*.yaml")} == set(MODELS)
    assert {file.stem for file in (CONF / "hardware").glob("*.yaml")} == set(CARDS)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_kv_bytes(name: str) -> None:
    spec = model(name)
    assert (spec.num_parameters, spec.kv_bytes_per_token) == MODELS[name]
    assert spec.name == name
    assert spec.weight_bytes == 2 * spec.num_parameters


def test_embeddings_and_head_are_counted() -> None:
    spec = model("llama-3-8b")
    without = spec.num_layers * spec.layer_parameters + spec.norm_parameters
    assert (spec.weight_bytes - 2 * without) / GIB == pytest.approx(1.96, abs=0.005)


@pytest.mark.parametrize(
    ("name", "card", "gpus", "slots"),
    [("opt-13b", "a100-40gb", 1, 15_700), ("opt-66b", "a100-40gb", 4, 9_700), ("opt-175b", "a100-80gb", 8, 60_100)],
)
def test_table_1_of_the_vllm_paper(name: str, card: str, gpus: int, slots: int) -> None:
    blocks = num_kv_blocks(model(name), hardware(card, tensor_parallel=gpus), 16, 2560)
    assert blocks * 16 == pytest.approx(slots, rel=0.01)


def test_default_pool_is_the_983_blocks_of_figure_2() -> None:
    assert num_kv_blocks(model("opt-13b"), hardware("a100-40gb"), 16, 2560) == 983


def test_pool_shrinks_with_the_batch_and_grows_with_the_card() -> None:
    spec = model("llama-3-8b")
    sizes = [num_kv_blocks(spec, hardware("h100"), 16, tokens) for tokens in (512, 2560, 8192)]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3
    blocks = [num_kv_blocks(spec, hardware(card), 16, 2560) for card in ("a100-40gb", "a100-80gb", "h200")]
    assert blocks == sorted(blocks) and len(set(blocks)) == 3


def test_weights_beyond_memory_are_refused_with_numbers_and_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"opt-66b does not fit 1 x a100-40gb.*122\.41.*hardware\.tensor_parallel"
    ) as e:
        num_kv_blocks(model("opt-66b"), hardware("a100-40gb"), 16, 2560)
    assert "\n" not in str(e.value)


def test_less_than_a_block_is_refused() -> None:
    spec, card = model("opt-13b"), hardware("a100-40gb")
    barely = replace(card, workspace_bytes=card.workspace_bytes + 983 * 16 * spec.kv_bytes_per_token)
    with pytest.raises(ConfigError, match=r"leaves 0\.00 GiB where a block needs 0\.0122"):
        num_kv_blocks(spec, barely, 16, 2560)


def test_heads_split_or_replicated() -> None:
    spec = model("yi-6b")  # 32 heads, 4 KV heads
    assert [spec.kv_bytes_per_gpu(gpus) for gpus in (1, 2, 4, 8)] == [65_536, 32_768, 16_384, 16_384]
    with pytest.raises(ConfigError, match=r"tensor_parallel=3 cannot split the 32 heads and 4 KV heads of yi-6b"):
        spec.kv_bytes_per_gpu(3)
    with pytest.raises(ConfigError, match="cannot split"):
        num_kv_blocks(model("smollm2-135m"), hardware("h200", tensor_parallel=2), 16, 2048)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 0),
        ("hidden_size", 5120.0),
        ("num_heads", True),
        ("num_heads", 41),
        ("num_kv_heads", 7),
        ("vocab_size", "50272"),
        ("ffn_size", 10**12),
        ("max_model_len", 2049),
        ("tied_embeddings", 1),
        ("architecture", "gpt2"),
        ("name", ""),
        ("rope_theta", 0.5),
        ("rope_theta", "10000"),
        ("norm_eps", 0.0),
        ("norm_eps", float("nan")),
        ("dtype_bytes", -2),
    ],
)
def test_bad_model_fields(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"model\.{field}") as e:
        replace(model("opt-13b"), **{field: value})  # type: ignore[arg-type]
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_bytes", 40e9),
        ("memory_bandwidth", float("nan")),
        ("peak_flops", -1.0),
        ("interconnect_bandwidth", float("inf")),
        ("tensor_parallel", 0),
        ("tensor_parallel", True),
        ("memory_utilization", 1.5),
        ("memory_utilization", "0.9"),
        ("workspace_bytes", -1),
    ],
)
def test_bad_hardware_fields(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"hardware\.{field}"):
        replace(hardware("h100"), **{field: value})  # type: ignore[arg-type]


def test_opt_config_json(tmp_path: Path) -> None:
    path = write_config(
        tmp_path,
        model_type="opt",
        hidden_size=768,
        num_attention_heads=12,
        num_hidden_layers=12,
        ffn_dim=3072,
        vocab_size=50272,
        max_position_embeddings=2048,
        word_embed_proj_dim=768,
        do_layer_norm_before=True,
    )
    assert replace(ModelSpec.from_hf_config(path), name="opt-125m") == model("opt-125m")


LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}


def test_llama_config_json_replaces_the_shape(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    spec = model("opt-13b", config=write_config(folder, **LLAMA_3_8B))
    assert spec == replace(model("llama-3-8b"), name="my-llama")
    assert ModelSpec.from_hf_config(folder) == spec


def test_mistral_window_and_qwen2_biases(tmp_path: Path) -> None:
    shape = LLAMA_3_8B | {"vocab_size": 32000, "max_position_embeddings": 32768}
    mistral = ModelSpec.from_hf_config(
        write_config(tmp_path, **shape | {"model_type": "mistral", "sliding_window": 4096})
    )
    assert (mistral.num_parameters, mistral.max_model_len) == (7_241_732_096, 4096)
    window = {"sliding_window": 4096, "use_sliding_window": False}
    qwen2 = ModelSpec.from_hf_config(write_config(tmp_path, **shape | {"model_type": "qwen2"} | window))
    assert qwen2.num_parameters - mistral.num_parameters == 32 * (4096 + 2 * 1024)
    assert qwen2.max_model_len == 32768


def test_rotary_base_and_norm_epsilon(tmp_path: Path) -> None:
    plain = {key: value for key, value in LLAMA_3_8B.items() if key not in ("rope_theta", "rms_norm_eps")}
    spec = ModelSpec.from_hf_config(write_config(tmp_path, **plain))
    assert (spec.rope_theta, spec.norm_eps) == (10000.0, 1e-6)  # those of transformers
    nested = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}
    assert ModelSpec.from_hf_config(write_config(tmp_path, **plain | nested)).rope_theta == 1e6
    with pytest.raises(ConfigError, match=r"model\.rope_theta='1e6': must be a number"):
        ModelSpec.from_hf_config(write_config(tmp_path, **plain | {"rope_theta": "1e6"}))
    with pytest.raises(ConfigError, match="rope_parameters=7"):
        ModelSpec.from_hf_config(write_config(tmp_path, **plain | {"rope_parameters": 7}))


@pytest.mark.parametrize(
    ("name", "theta", "epsilon"),
    [
        ("opt-13b", 1e4, 1e-5),
        ("llama-13b", 1e4, 1e-6),
        ("llama-3-8b", 5e5, 1e-5),
        ("yi-6b", 5e6, 1e-5),
        ("smollm2-135m", 1e5, 1e-5),
    ],
)
def test_arithmetic_of_the_options(name: str, theta: float, epsilon: float) -> None:
    assert (model(name).rope_theta, model(name).norm_eps) == (theta, epsilon)


def test_explicit_head_dim(tmp_path: Path) -> None:
    spec = ModelSpec.from_hf_config(write_config(tmp_path, **LLAMA_3_8B | {"head_dim": 64}))
    assert spec.kv_bytes_per_token == 65_536


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not supported; supported are opt, llama, mistral, qwen2"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"hidden_size": "4096"}, "hidden_size='4096': must be a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads=0"),
        ({"num_attention_heads": 33}, "must divide hidden_size=4096"),
        ({"sliding_window": "long"}, "sliding_window='long'"),
        ({"vocab_size": -1}, r"model\.vocab_size=-1"),
        ({"model_type": "opt"}, "field 'ffn_dim' is missing"),
        ({"model_type": "opt", "do_layer_norm_before": False}, "opt-350m"),
    ],
)
def test_config_json_refusals(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as e:
        ModelSpec.from_hf_config(write_config(tmp_path, **LLAMA_3_8B | change))
    assert str(tmp_path) in str(e.value) and "\n" not in str(e.value)


def test_unreadable_config_json(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no readable"):
        load_model(str(tmp_path / "missing.json"))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is no readable"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(ConfigError, match="model_type None"):
        load_model(str(tmp_path))
    with pytest.raises(ConfigError, match=r"model\.config=5"):
        load_model(5)  # type: ignore[arg-type]
