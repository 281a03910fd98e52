"""The models of the corpus with inputs for each, three sizes of those that have several.

`ENTRIES[name](size)` makes the inputs by name; size 1 is the one that is timed. What has only one size
gives other values for the sizes 2 and 3.
"""

from collections.abc import Callable, Mapping

import numpy as np

from bench import inputs

Feeds = Mapping[str, np.ndarray]


def _smooth(name: str, *shapes: tuple[int, int, int, int]) -> Callable[[int], Feeds]:
    return lambda size: {name: inputs.smooth_images(shapes[(size - 1) % len(shapes)], size)}


def _page(
    name: str, scale: float, shift: float, *shapes: tuple[int, int, int, int], seed: int = 0
) -> Callable[[int], Feeds]:
    """Pages as inputs; `seed` is one for which the model finds text on the pages of all sizes."""

    def make(size: int) -> Feeds:
        page = inputs.page_images(shapes[(size - 1) % len(shapes)], seed + size)
        return {name: (scale * page + shift).astype(np.float32)}

    return make


def _opennsfw(size: int) -> Feeds:
    image = inputs.smooth_images(((1, 2, 3)[size - 1], 3, 224, 224), size) * 60
    return {"input:0": np.ascontiguousarray(image.transpose(0, 2, 3, 1))}


def _ddddocr_det(size: int) -> Feeds:
    return {
        "images": inputs.smooth_images((1, 3, 416, 416), size) * np.float32(60) + np.float32(128)
    }


def _minilm(size: int) -> Feeds:
    batch, length = ((1, 128), (2, 17), (3, 40))[size - 1]
    ids = inputs.token_ids((batch, length), 30000, size).astype(np.int64)
    mask = np.ones((batch, length), np.int64)
    if size > 1:
        mask[-1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _silero(size: int) -> Feeds:
    batch = size
    sound = np.stack([inputs.tones(16000, 16000, size + i)[4000:4576] for i in range(batch)])
    return {
        "input": sound,
        "state": np.zeros((2, batch, 128), np.float32),
        "sr": np.array(16000),
    }


def _magika(size: int) -> Feeds:
    return {"bytes": inputs.file_beginnings(size, size)}


def _plcmos(size: int) -> Feeds:
    # never a batch of 1: the rank of the output would be another one
    batch, frames = ((2, 600), (3, 131), (5, 250))[size - 1]
    sound = np.stack([inputs.spectra(frames, size + i) for i in range(batch)])
    rater = np.random.default_rng(size).normal(size=(batch, 64)).astype(np.float32)
    return {"degraded_audio": sound[:, None], "rater_embed": rater}


def _spindles(size: int) -> Feeds:
    signal, spectrogram = inputs.brain_waves(size, size)
    return {"raw_signal": signal, "spectrogram": spectrogram}


def _mlsd(size: int) -> Feeds:
    page = inputs.page_images((1, 4, 320, 320), size) * np.float32(255)
    return {"input_image_with_alpha:0": np.ascontiguousarray(page.transpose(0, 2, 3, 1))}


def _minimol(size: int) -> Feeds:
    return inputs.molecules((16, 1, 5)[size - 1], size)


def _smart_turn(size: int) -> Feeds:
    """Mel features of speech as the model's own frontend scales them: from about -0.3 to 2.2."""
    mel = inputs.mel_features((size, 80, 800), size)
    return {"input_features": mel}


def _t5_encoder(size: int) -> Feeds:
    return _tokens((1, (16, 7, 40)[size - 1]), size, "input_ids", "attention_mask")


def _t5_decoder(size: int) -> Feeds:
    length, written = ((16, 6), (7, 1), (40, 12))[size - 1]
    encoded = np.random.default_rng(size).normal(0, 0.2, (1, length, 512)).astype(np.float32)
    return {
        "input_ids": inputs.token_ids((1, written), 30000, size).astype(np.int64),
        "encoder_hidden_states": encoded,
        "encoder_attention_mask": np.ones((1, length), np.int64),
    }


def _tokens(shape: tuple[int, int], seed: int, ids: str, mask: str) -> Feeds:
    tokens = inputs.token_ids(shape, 30000, seed).astype(np.int64)
    return {ids: tokens, mask: np.ones(shape, np.int64)}


_IMAGENET = (1, 3, 224, 224)

ENTRIES: Mapping[str, Callable[[int], Feeds]] = {
    "pp-ocr-det": _page("x", 4, -2, (1, 3, 640, 640), (1, 3, 320, 480), (2, 3, 160, 224), seed=1),
    "pp-ocr-rec": _page("x", 2, -1, (1, 3, 48, 320), (2, 3, 48, 160), (1, 3, 48, 632)),
    "pp-ocr-cls": _page("x", 2, -1, (1, 3, 48, 192), (3, 3, 48, 192), (6, 3, 48, 192)),
    "orientation": _smooth("x", _IMAGENET, (2, 3, 224, 224), (3, 3, 224, 224)),
    "opennsfw": _opennsfw,
    "ddddocr-det": _ddddocr_det,
    "ddddocr-rec": _page("input1", 2, -1, (1, 1, 64, 160), (1, 1, 64, 96), (1, 1, 64, 312)),
    "minilm": _minilm,
    "silero-vad": _silero,
    "magika": _magika,
    "plcmos": _plcmos,
    "spindles": _spindles,
    "mlsd": _mlsd,
    "minimol": _minimol,
    "squeezenet": _smooth("data_0", _IMAGENET),
    "resnet50": _smooth("gpu_0/data_0", _IMAGENET),
    "shufflenet": _smooth("gpu_0/data_0", _IMAGENET),
    "vgg19": _smooth("data_0", _IMAGENET),
    "densenet121": _smooth("data_0", _IMAGENET),
    "inception_v1": _smooth("data_0", _IMAGENET),
}
"""Inputs of each model by its name in the corpus."""

QUANTIZED: Mapping[str, Callable[[int], Feeds]] = {
    "smart-turn": _smart_turn,
    "ddddocr-old": _page("input1", 2, -1, (1, 1, 64, 160), (1, 1, 64, 96), (1, 1, 64, 312)),
    "t5-encoder": _t5_encoder,
    "t5-decoder": _t5_decoder,
}
"""The same for models of 8-bit integers, whose results other engines only come near to."""
