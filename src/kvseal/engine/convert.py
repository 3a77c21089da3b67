"""GGUF to a Hugging Face folder, once: `python -m kvseal.engine.convert MODEL.gguf FOLDER`.

transformers reads GGUF, but takes a quarter of a minute and a gigabyte for what loads from safetensors in a
third of a second, and refuses to save what it read so. Weights are written in float32: that is exactly what
the quantised numbers mean, and the reader chooses its dtype.
"""

import sys
from pathlib import Path
from typing import Final

import torch
from gguf import GGUFReader
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

# Vocabularies whose pre-tokenizer splits numbers into digits before anything else. transformers reads the
# vocabulary and the merges of a GGUF file and passes over this field.
_DIGITS_FIRST: Final = frozenset({"smollm"})


def convert(gguf: Path, folder: Path) -> None:
    """Write config, generation config, float32 weights, tokenizer and chat template into the empty `folder`.

    Needs about 1.2 GB of memory for the embedded model. Raises OSError and whatever transformers says about a
    file that it cannot read.
    """
    quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = quantised.config
    # The weights are plain numbers now; with this entry, saving is refused and loading would look for GGUF.
    del config.quantization_config
    vars(config).pop("_model_name_or_path", None)  # the name inside the GGUF file; nothing reads it
    plain = type(quantised)(config)
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(folder)

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = config.max_position_embeddings
    _split_as_trained(tokenizer, gguf)
    tokenizer.save_pretrained(folder)


def _split_as_trained(tokenizer: PreTrainedTokenizerBase, gguf: Path) -> None:
    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() in _DIGITS_FIRST:
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
            [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        )


def main(arguments: list[str]) -> int:
    """Exit status: 0 done, 2 wrong usage; a failure raises, and its last line is the reason."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m kvseal.engine.convert MODEL.gguf FOLDER\n")
        return 2
    convert(Path(arguments[0]), Path(arguments[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
