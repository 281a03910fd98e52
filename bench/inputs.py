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


def sound_and_silence(samples: int, rate: int, seed: int) -> np.ndarray:
    """Float32 [samples] in [-1, 1]: tones, a quarter of each second silent, and a burst of noise every 4 seconds."""
    random, out = np.random.default_rng(seed), tones(samples, rate, seed)
    for start in range(0, samples, rate):
        out[start : start + rate // 4] = 0
    for start in range(0, samples, 4 * rate):
        burst = out[start + int(random.integers(0, 3 * rate)) :][: rate // 2]
        burst += random.normal(0, 0.2, len(burst)).astype(np.float32)
    return np.clip(out, -1, 1)


def token_ids(shape: tuple[int, ...], vocabulary: int, seed: int) -> np.ndarray:
    """Int64 ids in [3, vocabulary)."""
    return np.random.default_rng(seed).integers(3, vocabulary, shape)


def spectra(frames: int, seed: int) -> np.ndarray:
    """Float32 [frames, 257]: log spectra of tones at 16 kHz, of windows of 512 samples, over 20."""
    sound = tones(256 * (frames + 1), 16000, seed)
    windows = np.lib.stride_tricks.sliding_window_view(sound, 512)[::256][:frames]
    amplitude = np.abs(np.fft.rfft(windows * np.hamming(513)[:-1]))
    return (np.log(np.maximum(amplitude**2, 1e-12)) / 20).astype(np.float32)


def mel_features(shape: tuple[int, int, int], seed: int) -> np.ndarray:
    """Speech-like mel features [batch, bands, frames]: formants that rise and fall, with a little noise."""
    random = np.random.default_rng(seed)
    _, bands, frames = shape
    band = np.arange(bands)[:, None]
    time = np.linspace(0, 1, frames)
    sound = np.zeros(shape)
    for each in sound:
        phase = random.uniform(0, 2 * np.pi)
        each += 0.9 + 0.6 * np.sin(2 * np.pi * (3 + 0.3 * band) * time + band + phase)
        each += 0.5 * np.sin(40 * time * (1 + band / bands)) * np.exp(-((4 * time - 2) ** 2))
    return (sound + 0.02 * random.standard_normal(shape)).astype(np.float32)


def brain_waves(windows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Windows of 30 s at 250 Hz and their spectrograms.

    Returns:
        Float32 [windows, 1, 7500], of unit spread, with bursts of 13 Hz; and float32 [windows, 15, 7500],
        the strength of 15 bands from 12 to 24 Hz, of unit spread.
    """
    random, t = np.random.default_rng(seed), np.arange(7500) / 250
    signal = np.cumsum(random.normal(size=(windows, 7500)), axis=1) * 0.05
    for row in signal:
        row -= np.convolve(row, np.ones(250) / 250, mode="same")
        for start in random.uniform(1, 28, 5):
            row += 2 * np.exp(-(((t - start) / 0.4) ** 2)) * np.sin(2 * np.pi * 13 * t)
    signal /= signal.std(axis=1, keepdims=True)
    span = np.arange(-125, 125) / 250
    bands = [
        np.abs(
            [
                np.convolve(row, np.hanning(250) * np.exp(2j * np.pi * f * span), "same")
                for row in signal
            ]
        )
        for f in np.linspace(12, 24, 15)
    ]
    spectrogram = np.stack(bands, axis=1)
    spectrogram = (spectrogram - spectrogram.mean()) / spectrogram.std()
    return signal[:, None].astype(np.float32), spectrogram.astype(np.float32)


def file_beginnings(count: int, seed: int) -> np.ndarray:
    """Int32 [count, 2048]: the first and last 1,024 bytes of files, 256 where a file has none."""
    random = np.random.default_rng(seed)
    words = [
        "def",
        "return",
        "import",
        "the",
        "of",
        "{",
        "}",
        "\n",
        "    ",
        "<p>",
        "</p>",
        "0x1f",
        "=",
    ]
    out = np.full((count, 2048), 256, np.int32)
    for i, row in enumerate(out):
        length = int(random.integers(200, 3000))
        if i % 3 == 2:
            data = random.integers(0, 256, length).astype(np.uint8)
        else:
            text = " ".join(random.choice(words, length)).encode()[:length]
            data = np.frombuffer(text, np.uint8)
        row[: min(length, 1024)] = data[:1024]
        row[2048 - min(length, 1024) :] = data[-1024:]
    return out


def molecules(count: int, seed: int) -> dict[str, np.ndarray]:
    """Graphs like those of molecules: a tree with some rings closed, both directions of each edge.

    Returns:
        For all atoms: `feat` [atoms, 85] (properties and one-hot groups), the 8 first eigenvalues and
        eigenvectors of the graph's Laplacian, and the chance of being back after 1 to 16 random steps;
        `edge_feat` [edges, 13]; `edge_index` int64 [2, edges]; `batch` int64 [atoms], the graph of each;
        `graph_slots` [count], zeros.
    """
    random = np.random.default_rng(seed)
    parts: dict[str, list[np.ndarray]] = {}
    first = 0
    for graph in range(count):
        found = _molecule(random, int(random.integers(9, 31)))
        found["edge_index"] += first
        first += len(found["feat"])
        found["batch"] = np.full(len(found["feat"]), graph)
        for name, value in found.items():
            parts.setdefault(name, []).append(value)
    axes = {"edge_index": 1}
    made = {name: np.concatenate(v, axis=axes.get(name, 0)) for name, v in parts.items()}
    return {**made, "graph_slots": np.zeros(count, np.float32)}


def _molecule(random: np.random.Generator, atoms: int) -> dict[str, np.ndarray]:
    joined = np.zeros((atoms, atoms))
    for i in range(1, atoms):
        j = int(random.integers(max(0, i - 3), i))
        joined[i, j] = joined[j, i] = 1
    for i in range(0, atoms - 5, 7):
        joined[i, i + 5] = joined[i + 5, i] = 1
    degree = joined.sum(axis=1)
    values, vectors = np.linalg.eigh(np.diag(degree) - joined)
    step, power, back = joined / degree, np.eye(atoms), []
    for _ in range(16):
        power = power @ step
        back.append(np.diag(power))
    edges = np.stack(np.nonzero(joined))
    features = np.zeros((atoms, 85))
    features[:, 0] = degree
    features[:, 3:5] = random.integers(0, 2, (atoms, 2))
    for low, high in ((5, 49), (49, 68), (68, 76), (76, 85)):
        features[np.arange(atoms), random.integers(low, high, atoms)] = 1
    bonds = np.zeros((edges.shape[1], 13))
    bonds[np.arange(edges.shape[1]), (edges.sum(axis=0) * 7 + atoms) % 5] = 1
    bonds[:, 12] = edges.min(axis=0) % 7 < 2
    made = {
        "feat": features,
        "edge_feat": bonds,
        "laplacian_eigvec": vectors[:, :8],
        "laplacian_eigval": np.tile(values[:8], (atoms, 1)),
        "rw_return_probs": np.stack(back, axis=1),
    }
    return {**{k: v.astype(np.float32) for k, v in made.items()}, "edge_index": edges}
