"""Text drawn as images: short lines and whole pages, in several fonts and sizes, with noise and a little rotation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from bench import corpus

FONTS = ("source-sans.ttf", "source-serif.ttf", "caladea.ttf", "roboto.ttf", "")
"""Files of the corpus; the empty name is the font that Pillow has itself."""

WORDS = tuple(
    "able about account across action address after again agree airport almost along amount animal answer apple "
    "april area around arrive artist august autumn balance bank basket battery beach before begin behind believe "
    "below better between bicycle board book border bottle bridge bright bring brother budget build business "
    "butter button camera cancel candle capital carbon careful carry castle catch center century chair change "
    "charge cheap check cheese choice church circle city clean clear clock close cloud coffee cold collect color "
    "column common company compare contract copper corner cotton count country course cover credit cross crowd "
    "current custom daily danger date december decide deep delivery depart design desk detail dinner direct "
    "discount district doctor dollar double dozen draft dream drive during early earth east easy edge editor "
    "effect eight electric empty energy engine enough enter equal error estate evening event every exact example "
    "except exit expert factory family farmer fast february field figure final finger first flight floor flower "
    "follow food forest format forward four fresh friday friend front fruit full future garden gate general "
    "gentle glass global gold good grain grand grass green ground group grow guard guest guide half hand happy "
    "harbor heavy height hello help high history holiday home honest hotel hour house human hundred image import "
    "inch index inside invoice iron island item january join journey juice july jump june keep key kitchen knife "
    "label ladder lake large last later law lawyer leader learn leather left length lesson letter level library "
    "light limit line list little local long lower lucky lunch machine mail main manage map march market master "
    "material meal measure meat medium meeting member message metal middle milk minute mirror model modern monday "
    "money month morning motor mountain museum music narrow nation nature near never night nine noise normal "
    "north notice november number object ocean october offer office often only open option orange order other "
    "outside oven owner packet page paint paper parcel parent park partner passenger past patient pattern payment "
    "pencil people perfect period person phone photo piano picture piece pilot place plan plant plastic plate "
    "platform please pocket point police popular port power prepare present price print private problem product "
    "profit project proof public pump purple quality quarter question quick quiet radio railway rain random rate "
    "ready reason receipt record red reduce region regular remain rent repair reply report rest result return "
    "rice right river road roof room round route royal rule safety salad sale salt sample sand saturday save "
    "scale school science screen season second secret section sell send september series service seven shadow "
    "shape share sheet ship shirt shop short shoulder side signal silver simple single sister size skill sleep "
    "slow small smooth snow social soft solid song sound soup source south space speak special speed spoon sport "
    "spring square staff stage stamp standard star start state station steel step stock stone storage store storm "
    "story street strong student studio subject sugar summer sunday supply surface sweet switch system table tall "
    "target tax teacher team ten test thank theater thick thin third thousand thursday ticket tiger time tissue "
    "title today tomorrow tool top total tower town track trade traffic train travel tree trip truck true tuesday "
    "turn twelve twenty type under union unit until upper urban useful valley value vehicle version victory "
    "village visit voice volume wait walk wall warm watch water wave weather wednesday week weight west wheel "
    "white wide window winter wire wish wonder wood word work world write yard year yellow young zero zone".split()
)


def font(name: str, size: int) -> Any:
    """A font of `FONTS` in a size in pixels."""
    if not name:
        return ImageFont.load_default(size)
    return ImageFont.truetype(str(corpus.data(name)), size)


def words(random: np.random.Generator, count: int) -> str:
    """Words and numbers with spaces between them, some with capitals."""
    parts: list[str] = []
    for _ in range(count):
        kind = random.random()
        word = str(random.choice(WORDS))
        if kind < 0.15:
            parts.append(str(random.integers(1, 10 ** int(random.integers(2, 7)))))
        elif kind < 0.2:
            parts.append(f"{random.integers(1, 900)}.{random.integers(0, 100):02}")
        elif kind < 0.4:
            parts.append(word.capitalize())
        else:
            parts.append(word)
    return " ".join(parts)


def line_image(random: np.random.Generator, text: str) -> np.ndarray:
    """One line of text, cut out with a narrow margin: uint8 [h, w, 3].

    Dark on light or light on dark, 18 to 48 pixels high letters, turned by up to 1.5 degrees, with noise.
    """
    face = font(str(random.choice(FONTS)), int(random.integers(18, 49)))
    left, top, right, bottom = (int(v) for v in face.getbbox(text))
    margin = int(random.integers(3, 7))
    size = (right - left + 2 * margin, bottom - top + 2 * margin)
    paper, ink = _colors(random)
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).text((margin - left, margin - top), text, font=face, fill=ink)
    turned = image.rotate(
        float(random.uniform(-1.5, 1.5)), Image.Resampling.BICUBIC, fillcolor=paper
    )
    return _noisy(random, np.asarray(turned))


def page_image(random: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """An upright page of (width, height) pixels: uint8 [h, w, 3].

    A few paragraphs anywhere on it, some in a box, in letters of 9 to 40 pixels, some faint, turned by up to 8 degrees,
    some blurred, with noise.
    """
    width, height = size
    paper, ink = _colors(random)
    ink = _mixed(paper, ink, random.uniform(0.3, 1))
    image = Image.new("RGB", size, paper)
    draw = ImageDraw.Draw(image)
    name = str(random.choice(FONTS))
    for _ in range(int(random.integers(1, 5))):
        points = int(random.integers(9, 41))
        face = font(name, points)
        left, y = int(random.integers(5, width // 2)), int(random.integers(5, height - 2 * points))
        bottom = y
        for _ in range(int(random.integers(1, 6))):
            text = words(random, 8)
            while text and face.getlength(text) > width - left - 5:
                text = text.rpartition(" ")[0]
            draw.text((left, bottom), text, font=face, fill=ink)
            bottom += int(1.35 * points)
        if random.random() < 0.2:
            draw.rectangle((left - 4, y - 3, width - 6, bottom + 3), outline=ink, width=2)
    if random.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(float(random.uniform(0.3, 1.5))))
    turned = image.rotate(float(random.uniform(-8, 8)), Image.Resampling.BICUBIC, fillcolor=paper)
    return _noisy(random, np.asarray(turned), 40)


def resized(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The image in another (width, height), uint8."""
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def _colors(random: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Paper and ink that are far enough apart."""
    light: Sequence[int] = random.integers(190, 256, 3).tolist()
    dark: Sequence[int] = random.integers(0, 70, 3).tolist()
    pair = (tuple(light), tuple(dark))
    return pair if random.random() < 0.8 else pair[::-1]


def _mixed(a: tuple[int, ...], b: tuple[int, ...], part: float) -> tuple[int, ...]:
    """The color that lies a part of the way from one to another."""
    return tuple(round(x + part * (y - x)) for x, y in zip(a, b, strict=True))


def _noisy(random: np.random.Generator, pixels: np.ndarray, most: float = 12) -> np.ndarray:
    noise = random.normal(0, random.uniform(0, most), pixels.shape)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)
