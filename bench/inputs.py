"""Seeded inputs on which a model's output depends on every layer: smooth images, page-like images, tones, token ids.

White noise is a bad test input: some models map it to almost nothing, and engines then differ by rounding alone.
"""

import numpy as np


def smooth_images(shape: tuple[int, int, int, int], seed: int) -> np.ndarray:
    """Float32 [n, c, h, w], about zero mean and unit spread: six random waves a channel and a little noise."""
    random = np.random.default_rng(seed)
    n, c, h, w = shape
    y, x = np.mgrid[0:h, 0:w] / max(h, w)
    out = np.zeros(shape, np.float32)
    for i in range(n):
        for k in range(c):
            for _ in range(6):
                fy, fx = random.uniform(0, 8, 2)
                out[i, k] += random.normal() * np.sin(
                    2 * np.pi * (fy * y + fx * x) + random.uniform(0, 6.28)
                )
        out[i] += random.normal(0, 0.3, (c, h, w))
    return out


def page_images(shape: tuple[int, int, int, int], seed: int) -> np.ndarray:
    """Float32 [n, c, h, w] in [0, 1]: lines of dark glyph-like strokes on paper."""
    random = np.random.default_rng(seed)
    n, _, h, w = shape
    out = np.full(shape, 0.93, np.float32) + random.normal(0, 0.01, shape).astype(np.float32)
    for i in range(n):
        size = max(6, min(28, h // 3))
        for top in range(size // 2, h - size, int(size * 1.6)):
            left = size
            while left < w - size:
                for _ in range(3):
                    a, b = random.integers(0, size, 2)
                    if random.random() < 0.5:
                        out[i, :, top + a, left : left + size // 2] = 0.1
                    else:
                        out[i, :, top : top + size, left + b // 2] = 0.1
                left += size if random.random() < 0.85 else 2 * size
    return np.clip(out, 0, 1)


def tones(samples: int, rate: int, seed: int) -> np.ndarray:
    """Float32 [samples] in [-1, 1]: harmonic tones with onsets, and a little noise."""
    random, t = np.random.default_rng(seed), np.arange(samples) / rate
    out = random.normal(0, 0.005, samples)
    for onset in np.arange(0, samples / rate, 0.4):
        f = random.uniform(110, 880)
        envelope = np.where(t >= onset, np.exp(-4 * np.maximum(t - onset, 0)), 0)
        out += 0.2 * envelope * sum(np.sin(2 * np.pi * f * k * t) / k for k in (1, 2, 3))
    return np.clip(out, -1, 1).astype(np.float32)


def token_ids(shape: tuple[int, ...], vocabulary: int, seed: int) -> np.ndarray:
    """Int64 ids in [3, vocabulary)."""
    return np.random.default_rng(seed).integers(3, vocabulary, shape)
