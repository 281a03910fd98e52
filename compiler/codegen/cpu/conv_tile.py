"""A register tile of a direct convolution: some output pixels times the vectors of a panel."""

from collections.abc import Sequence

from xcompile.compiler.codegen.cpu.builder import Index, Value, vector_type
from xcompile.compiler.codegen.cpu.conv_context import ConvContext, Place, Tile
from xcompile.compiler.codegen.cpu.products import finish_tile, multiply_tile
from xcompile.compiler.codegen.cpu.windows import clip
from xcompile.compiler.schedule.conv_problem import panel_reach
from xcompile.compiler.target.target import CACHE_LINE


class RegisterTile:
    """Some output pixels times the vectors of a panel, held in registers."""

    def __init__(
        self,
        context: ConvContext,
        tile: Tile,
        panel: Index,
        pixel: Index,
        number: Index,
        pixels: int,
        valid: Index | None,
    ) -> None:
        """A register tile.

        Args:
            context: of the convolution.
            tile: the tile it belongs to.
            panel: the number of the panel.
            pixel: the number of the first pixel in the tile.
            number: the number of the register tile in the tile.
            pixels: how many pixels.
            valid: how many of the pixels exist (at least one); None says all. The others repeat the last.
        """
        self.context, self.b, self.tile = context, context.b, tile
        self.panel, self.pixel, self.number = panel, pixel, number
        self.pixels, self.valid = pixels, valid
        self.vectors = context.schedule.vectors
        self.cells = [(i, j) for i in range(pixels) for j in range(self.vectors)]

    def emit(self, weights: Index, first: Index, count: Index) -> None:
        """Sum up `count` blocks of input channels from `first` on; the last part goes to the sink."""
        context, b = self.context, self.b
        low, high = self.blocks
        types = [vector_type(context.lanes, context.sum_dtype)] * len(self.cells)
        places = self.places()
        if context.problem.groups > 1 and not context.problem.is_integer:
            self.finish(self.sum_groups(types, places, weights), places)
            return
        unit = self.first_unit() if context.problem.groups > 1 else 0
        sums = self.reduce(self.offsets(places), weights, first, count, unit)
        if context.partial is None:
            self.finish(sums, places)
            return
        totals = b.choose(
            b.compare("eq", first, low), types, lambda: sums, lambda: self.add_partial(sums)
        )
        last = b.compare("sge", b.add(first, count), high)
        b.either(last, lambda: self.finish(totals, places), lambda: self.store_partial(totals))

    @property
    def blocks(self) -> tuple[Index, Index]:
        """The blocks of input channels that are summed up: the first, and one past the last."""
        low, high = (self.b.mul(image, self.context.blocking.blocks) for image in self.tile.images)
        return low, high

    def zero(self) -> Value:
        """A vector of sums of nothing."""
        context, b = self.context, self.b
        if context.problem.is_integer:
            return b.int_constant(0, context.sum_dtype, context.lanes)
        return b.float_constant(0.0, context.sum_dtype, context.lanes)

    def first_unit(self) -> Index:
        """The first unit of input channels of a panel of integers: where its first group begins, or before."""
        context, b, problem = self.context, self.b, self.context.problem
        reach = panel_reach(problem, self.vectors, context.target)
        oc, c = problem.oc // problem.groups, problem.c // problem.groups
        group = b.div(b.mul(self.panel, self.vectors * context.lanes), oc)
        return b.min(b.div(b.mul(group, c), context.blocking.form.group), reach.last)

    def sum_groups(self, types: list[str], places: Sequence[Place], weights: Index) -> list[Value]:
        """The sums of a panel: those of one of its groups after the other, each kept for its own output channels.

        So what the channels of one group hold, NaN and infinity too, stays away from the others.
        """
        context, b, blocking = self.context, self.b, self.context.blocking
        problem, lanes = context.problem, context.lanes
        c, oc, width = (
            problem.c // problem.groups,
            problem.oc // problem.groups,
            self.vectors * lanes,
        )
        first = b.mul(self.panel, width)
        low = b.div(first, oc)
        high = b.add(b.div(b.sub(b.min(b.add(first, width), problem.oc), 1), oc), 1)
        zeros = [self.zero()] * len(self.cells)
        offsets = self.offsets(places)

        def body(group: Index, kept: list[Value]) -> Sequence[Value]:
            own = b.add(weights, b.mul(b.sub(group, low), blocking.group))
            sums = self.sum_group(offsets, own, b.mul(group, c))
            begin = b.sub(b.mul(group, oc), first)
            masks = [self.lanes_in(b.sub(begin, j * lanes), oc) for j in range(self.vectors)]
            return [
                b.op(f"arith.select {masks[j]}, {new}, {old} : vector<{lanes}xi1>, {types[0]}")
                for (_, j), new, old in zip(self.cells, sums, kept, strict=True)
            ]

        return b.reduce(low, high, 1, zeros, types, body)

    def sum_group(
        self, offsets: Sequence[tuple[Index, int]], weights: Index, channel: Index
    ) -> list[Value]:
        """The sums over the channels of a group, which begin at `channel`: parts of them, added."""
        context, b = self.context, self.b
        (low, high), most = self.blocks, context.schedule.k_blocks
        if most >= context.blocking.in_blocks:
            return self.reduce(offsets, weights, low, b.sub(high, low), channel)
        types = [vector_type(context.lanes, context.sum_dtype)] * len(self.cells)
        zeros = [self.zero()] * len(self.cells)

        def part(first: Index, totals: list[Value]) -> Sequence[Value]:
            count = clip(b, high, first, most, low)
            return self.add(totals, self.reduce(offsets, weights, first, count, channel))

        return b.reduce(low, high, most, zeros, types, part)

    def add(self, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        """The sums of vectors."""
        context = self.context
        op = "arith.addi" if context.problem.is_integer else "arith.addf"
        return [
            self.b.binary(op, x, y, context.lanes, context.sum_dtype)
            for x, y in zip(left, right, strict=True)
        ]

    def lanes_in(self, begin: Index, count: int) -> Value:
        """A mask of the lanes in [begin, begin + count); begin may be negative."""
        b, lanes = self.b, self.context.lanes
        behind = b.tail_mask(b.max(b.add(begin, count), 0), lanes)
        before = b.tail_mask(b.max(begin, 0), lanes)
        return b.binary("arith.xori", behind, before, lanes, "i1")

    # -- where the pixels are -----------------------------------------------------------------

    def places(self) -> list[Place]:
        """Where each pixel is, counted from the tile's first one; those that do not exist are where the last one is.

        Each follows from the one before by selects, the first too: LLVM computes sums and quotients again in the inner
        loops, whose sums it then keeps on the stack.
        """
        b, tile = self.b, self.tile
        width = tile.width
        if self.valid is None and tile.height == 1:
            return [Place(0, self.pixel, i) for i in range(self.pixels)]
        if tile.height == 1:
            row, column = 0, self.pixel
        else:
            row, column = b.div(self.pixel, width), b.rem(self.pixel, width)
        if self.valid is None and isinstance(width, int) and width % self.pixels == 0:
            return [Place(row, column, i) for i in range(self.pixels)]
        places: list[Place] = []
        for number in range(self.pixels):
            exists = self.exists(number)
            after = b.add(column, 1) if number else column
            if tile.height == 1:
                column = b.select(exists, after, column)
            else:
                wraps = b.compare("eq", after, width)
                column = b.select(exists, b.select(wraps, 0, after), column)
                row = b.select(b.both(exists, wraps), b.add(row, 1), row)
            places.append(Place(row, column))
        return places

    def offsets(self, places: Sequence[Place]) -> list[tuple[Index, int]]:
        """The offset of each pixel's first input, as a sum whose second term is known."""
        b, source = self.b, self.tile.source
        row_step = b.mul(source.row, source.steps[0])
        column_step = source.steps[1] * self.context.blocking.pixel
        known: dict[tuple[Index, Index], Index] = {}
        for place in places:
            at = (place.row, place.column)
            if at not in known:
                known[at] = b.add(source.base, b.flatten(at, [row_step, column_step]))
        return [(known[place.row, place.column], place.shift * column_step) for place in places]

    # -- the sum ------------------------------------------------------------------------------

    def reduce(
        self,
        offsets: Sequence[tuple[Index, int]],
        weights: Index,
        first: Index,
        count: Index,
        unit: Index = 0,
    ) -> list[Value]:
        """The loops over blocks, of one image of the window after the other, kernel columns, kernel rows and units.

        Where products take rows together, the last pixel fills them up.

        Args:
            offsets: where the pixels are.
            weights: where those of the panel, or of its group, begin.
            first: the first block.
            count: how many.
            unit: the first unit of an image's first block.

        Returns:
            The sums of each pixel.
        """
        context, b = self.context, self.b
        rows = context.blocking.form.rows
        computed = -(-self.pixels // rows) * rows * self.vectors
        types = [vector_type(context.lanes, context.sum_dtype)] * computed
        blocking, schedule, window = context.blocking, context.schedule, context.problem.window
        source = self.tile.source
        kh, kw = context.problem.taps
        tap = blocking.units * blocking.unit
        stride = source.plane if context.problem.is_plain else blocking.form.group

        def over_units(at: Index, weight: Index, carried: list[Value]) -> Sequence[Value]:
            def body(number: Index, inner: list[Value]) -> Sequence[Value]:
                x = b.add(at, b.mul(number, stride))
                w = b.add(weight, b.mul(number, blocking.unit))
                self.prefetch(w, count)
                self.prefetch_input(offsets[0][0], x)
                return self.step(inner, offsets, x, w, stride)

            return b.reduce(0, blocking.units, schedule.unroll, carried, types, body)

        def over_block(block: Index, carried: list[Value]) -> Sequence[Value]:
            own, image = block, 0
            if context.problem.depth is not None:
                image, own = b.unflatten(block, [0, blocking.blocks])
            x0 = b.mul(own, source.plane)
            if context.problem.groups > 1:
                start = b.mul(b.add(unit, b.mul(own, blocking.units)), blocking.form.group)
                plane, lane = b.div(start, context.lanes), b.rem(start, context.lanes)
                x0 = b.add(b.mul(plane, source.plane), lane)
            x0 = b.add(x0, b.mul(image, source.image))
            w0 = b.add(weights, b.mul(block, kh * kw * tap))

            def over_columns(s: Index, outer: list[Value]) -> Sequence[Value]:
                x1 = b.add(x0, b.mul(s, window.dilations[1] * blocking.pixel))
                w1 = b.add(w0, b.mul(s, kh * tap))

                def over_rows(r: Index, inner: list[Value]) -> Sequence[Value]:
                    x2 = b.add(x1, b.mul(b.mul(r, window.dilations[0]), source.row))
                    return over_units(x2, b.add(w1, b.mul(r, tap)), inner)

                return b.reduce(0, kh, 1, outer, types, over_rows)

            return b.reduce(0, kw, 1, carried, types, over_columns)

        zeros = [self.zero()] * computed
        sums = b.reduce(first, b.add(first, count), 1, zeros, types, over_block)
        finished = finish_tile(b, context.products, sums, self.vectors, context.lanes)
        return finished[: len(self.cells)]

    def step(
        self,
        sums: list[Value],
        offsets: Sequence[tuple[Index, int]],
        x: Index,
        w: Index,
        stride: Index,
    ) -> list[Value]:
        """The unrolled units: for each, load the weights and a broadcast pixel after the other."""
        context, b, lanes = self.context, self.b, self.context.lanes
        products, blocking = context.products, context.blocking
        starts = {offset: b.add(offset, x) for offset, _ in offsets}
        for number in range(context.schedule.unroll):
            shift = b.mul(number, stride)
            row = b.add(w, number * blocking.unit)
            columns = [
                products.load_right(
                    b, context.weights, b.add(row, j * lanes * blocking.form.group), lanes
                )
                for j in range(self.vectors)
            ]

            def place(i: int, shift: Index = shift) -> Index:
                offset, known = offsets[min(i, self.pixels - 1)]
                return b.add(starts[offset], known, shift)

            sums = multiply_tile(b, products, self.tile.source.buffer, place, columns, sums, lanes)
        return sums

    def prefetch(self, w: Index, count: Index) -> None:
        """Fetch this register tile's share of the weights that come after the present part."""
        context, b, schedule = self.context, self.b, self.context.schedule
        if not schedule.prefetch:
            return
        kh, kw = context.problem.taps
        line = CACHE_LINE // context.weights.element_bytes
        lines = -(-schedule.unroll * context.blocking.unit // line)
        tiles = -(-schedule.tile_h * schedule.tile_w // schedule.pixels)
        share = -(-lines // tiles)
        part: Index = context.blocking.panel
        if context.partial is not None:
            part = b.mul(count, kh * kw * context.blocking.units * context.blocking.unit)
        at = b.add(w, part, b.mul(self.number, share * line))
        for number in range(share):
            b.prefetch(context.weights, b.add(at, number * line))

    def prefetch_input(self, offset: Index, x: Index) -> None:
        """Fetch what the next register tile reads in the present block of channels."""
        context, b = self.context, self.b
        if not context.schedule.prefetch_input:
            return
        elements = self.pixels * self.tile.source.steps[1] * context.blocking.pixel
        at = b.add(offset, x, elements)
        for line in range(0, elements, CACHE_LINE // context.blocking.element):
            b.prefetch(self.tile.source.buffer, b.add(at, line))

    # -- partial sums and results -------------------------------------------------------------

    def add_partial(self, sums: Sequence[Value]) -> list[Value]:
        """The sums and what waits: short sums are added, so that errors of rounding stay small."""
        context, b = self.context, self.b
        assert context.partial is not None
        waiting = [
            b.load(context.partial, self.partial_place(i, j), context.lanes) for i, j in self.cells
        ]
        return self.add(waiting, sums)

    def store_partial(self, sums: Sequence[Value]) -> None:
        context = self.context
        assert context.partial is not None
        for (i, j), value in zip(self.cells, sums, strict=True):
            with self.b.when(self.exists(i)):
                self.b.store(value, context.partial, self.partial_place(i, j), context.lanes)

    def partial_place(self, i: int, j: int) -> Index:
        b, width = self.b, self.vectors * self.context.lanes
        within = b.add(b.mul(self.existing(i), width), j * self.context.lanes)
        return b.add(b.mul(self.pixel, width), within)

    def existing(self, i: int) -> Index:
        """The pixel itself if it is valid, else the last one that is."""
        return i if self.valid is None else self.b.min(i, self.b.sub(self.valid, 1))

    def exists(self, i: int) -> Value | bool:
        """Whether pixel i is one of the valid ones."""
        return True if self.valid is None or i == 0 else self.b.compare("slt", i, self.valid)

    def finish(self, sums: Sequence[Value], places: Sequence[Place]) -> None:
        """Give the sums that are part of the output to the sink."""
        b, tile = self.b, self.tile
        for i, place in enumerate(places):
            row, column = b.add(tile.oh, place.row), b.add(tile.ow, place.column, place.shift)
            deep = [] if self.context.problem.depth is None else [tile.od]
            with b.when(self.exists(i)):
                there, within = self.output_place([*deep, row, column])
                with b.when(within):
                    self.give(sums[i * self.vectors : (i + 1) * self.vectors], there)

    def output_place(self, at: Sequence[Index]) -> tuple[Sequence[Index], Value | bool]:
        """Where the result of a place of the window lies, and whether the output has it."""
        b, phases, sizes = self.b, self.context.problem.phases, self.context.sizes
        if phases is None:
            return at, True
        found: list[Index] = []
        within: Value | bool = True
        places = [sizes.od, sizes.oh, sizes.ow][-len(at) :]
        for axis, (place, size) in enumerate(zip(at, places, strict=True)):
            factor, missing = phases.factors[axis], phases.missing[axis]
            found.append(b.add(b.mul(place, factor), self.tile.phase[axis]))
            if missing:
                inside = b.compare("slt", found[-1], b.sub(b.mul(size, factor), missing))
                within = b.both(within, inside)
        return found, within

    def give(self, sums: Sequence[Value], at: Sequence[Index]) -> None:
        """Give the vectors of one pixel to the sink."""
        context, b = self.context, self.b
        lanes, channels = context.lanes, context.problem.oc
        vector = b.mul(self.panel, self.vectors)
        for j, value in enumerate(sums):
            channel = b.mul(b.add(vector, j), lanes)
            ragged = channels % lanes != 0
            mask = b.tail_mask(b.sub(channels, channel), lanes) if ragged else None
            full = j == 0 or context.blocking.out_vectors % self.vectors == 0
            with b.when(True if full else b.compare("slt", channel, channels)):
                context.sink(b, value, [self.tile.n, channel, *at], lanes, mask)
