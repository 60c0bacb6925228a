"""PTX that uses every texture and surface instruction: geometry, element type, mode, offsets, comparison, predicate."""

HEADER = ".version 8.5\n.target sm_{sm}\n.address_size 64\n"
COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
"""Elements of the coordinate vector of a geometry; arrays have their index first."""
GRADIENTS = {"1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 2, "cube": 4, "acube": 4}


def vector(names):
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def coordinates(geometry, kind):
    """Coordinate operands; integer ones in %r, others in %f, array indices and samples always in %r."""
    letter = "%r" if kind == "s32" else "%f"
    count = COORDINATES[geometry]
    names = [f"{letter}{i + 1}" for i in range(count)]
    if geometry.startswith("a") or geometry == "2dms":
        names[0] = "%r1"
        if geometry == "a2dms":
            names[1] = "%r2"
    return vector(names)


def offset(geometry):
    return {"1d": "%r5", "a1d": "%r5", "2d": "{%r5, %r6}", "a2d": "{%r5, %r6}", "3d": "{%r5, %r6, %r7, %r8}"}.get(geometry)


def textures(handle):
    """Texture instructions; `handle` names the texture."""
    four = "{%r21, %r22, %r23, %r24}"
    for geometry in COORDINATES:
        samples = geometry.endswith("ms")
        kinds = ["s32"] if samples else ["f32"] if geometry.endswith("cube") else ["f32", "s32"]
        for kind in kinds:
            at = coordinates(geometry, kind)
            tails = [""]
            if offset(geometry):
                tails.append(f", {offset(geometry)}")
            if geometry in ("2d", "a2d", "cube", "acube") and kind == "f32":
                tails.append(", %f9")
                if offset(geometry):
                    tails.append(f", {offset(geometry)}, %f9")
            for tail in tails:
                yield f"tex.{geometry}.v4.u32.{kind} {four}, [{handle}, {at}]{tail};"
            yield f"tex.{geometry}.v4.u32.{kind} {four}|%p1, [{handle}, {at}];"
            if not samples:
                for tail in tails:
                    level = "%r9" if kind == "s32" else "%f10"
                    yield f"tex.level.{geometry}.v4.u32.{kind} {four}, [{handle}, {at}], {level}{tail};"
                zero = "0" if kind == "s32" else "0f00000000"
                yield f"tex.level.{geometry}.v4.u32.{kind} {four}, [{handle}, {at}], {zero};"
            if kind == "f32" and geometry in GRADIENTS and not samples:
                count = GRADIENTS[geometry]
                dx, dy = ("{" + ", ".join(f"%f{base + i}" for i in range(count)) + "}" for base in (11, 15))
                for tail in tails:
                    yield f"tex.grad.{geometry}.v4.u32.f32 {four}, [{handle}, {at}], {dx}, {dy}{tail};"
            if kind == "f32":
                yield f"tex.{geometry}.v2.f16x2.f32 {{%r21, %r22}}, [{handle}, {at}];"
    for geometry in ("2d", "a2d", "cube", "acube"):
        at = coordinates(geometry, "f32")
        for component in "rgba":
            tails = ["", ", %f9"]
            if offset(geometry):
                tails += [f", {offset(geometry)}", f", {offset(geometry)}, %f9"]
            for tail in tails:
                yield f"tld4.{component}.{geometry}.v4.u32.f32 {four}, [{handle}, {at}]{tail};"
        yield f"tld4.r.{geometry}.v4.u32.f32 {four}|%p1, [{handle}, {at}];"
    for query in ("width", "height", "depth", "channel_data_type", "channel_order", "normalized_coords", "array_size",
                  "num_mipmap_levels", "num_samples"):
        yield f"txq.{query}.b32 %r21, [{handle}];"
    yield f"txq.level.width.b32 %r21, [{handle}], %r9;"


def surfaces(handle):
    """Surface instructions."""
    places = {"1d": "%r1", "2d": "{%r1, %r2}", "3d": "{%r1, %r2, %r3, %r4}", "a1d": "{%r1, %r2}", "a2d": "{%r1, %r2, %r3, %r4}"}
    data = {"b8": "%h", "b16": "%h", "b32": "%r2", "b64": "%d"}
    for geometry, at in places.items():
        for clamp in ("trap", "clamp", "zero"):
            for kind, name in data.items():
                for count, mode in ((1, ""), (2, ".v2"), (4, ".v4")):
                    if kind == "b64" and count == 4:
                        continue
                    names = vector([f"{name}{i + 1}" for i in range(count)])
                    yield f"suld.b.{geometry}{mode}.{kind}.{clamp} {names}, [{handle}, {at}];"
                    yield f"sust.b.{geometry}{mode}.{kind}.{clamp} [{handle}, {at}], {names};"
            yield f"sust.p.{geometry}.v4.b32.{clamp} [{handle}, {at}], {{%r21, %r22, %r23, %r24}};"
            if geometry.startswith("a"):
                continue
            for operation, kinds in {"add": "u32 u64 s32", "min": "u32 s32", "max": "u32 s32", "and": "b32", "or": "b32"}.items():
                for kind in kinds.split():
                    value = "%d1" if kind.endswith("64") else "%r21"
                    yield f"sured.b.{operation}.{geometry}.{kind}.{clamp} [{handle}, {at}], {value};"
            for operation in "add min max and or".split():
                yield f"sured.p.{operation}.{geometry}.b32.{clamp} [{handle}, {at}], %r21;"
    for cache in "ca cg cs cv".split():
        yield f"suld.b.2d.v2.b32.{cache}.trap {{%r21, %r22}}, [{handle}, {{%r1, %r2}}];"
    for cache in "wb cg cs wt".split():
        yield f"sust.b.2d.v2.b32.{cache}.trap [{handle}, {{%r1, %r2}}], {{%r21, %r22}};"
    for query in ("width", "height", "depth", "channel_data_type", "channel_order", "array_size", "memory_layout"):
        yield f"suq.{query}.b32 %r21, [{handle}];"


REGISTERS = ".reg .b64 %d<9>; .reg .b32 %r<40>; .reg .f32 %f<30>; .reg .b16 %h<9>; .reg .pred %p<4>;\n"
LOADS = "".join(
    [f"ld.global.u32 %r{i}, [%d0+{4 * i}];\n" for i in range(1, 34)]
    + [f"ld.global.f32 %f{i}, [%d0+{256 + 4 * i}];\n" for i in range(1, 26)]
    + [f"ld.global.u16 %h{i}, [%d0+{512 + 2 * i}];\n" for i in range(1, 5)]
    + [f"ld.global.u64 %d{i}, [%d0+{640 + 8 * i}];\n" for i in range(1, 3)]
)


def kernel(number, instruction, declarations):
    """A kernel around one instruction: everything that it may write is stored."""
    stores = "".join(f"st.global.u32 [%d0+{4 * i}], %r{i};\n" for i in range(20, 34))
    stores += "".join(f"st.global.u16 [%d0+{512 + 2 * i}], %h{i};\n" for i in range(1, 5))
    stores += "".join(f"st.global.u64 [%d0+{640 + 8 * i}], %d{i};\n" for i in range(1, 3))
    predicate = "setp.ne.u32 %p1, %r1, %r2;\n"
    return (
        f".visible .entry k{number}(.param .u64 out, .param .u64 handle) {{\n{REGISTERS}"
        f"ld.param.u64 %d0, [out];\nld.param.u64 %d8, [handle];\n{declarations}{LOADS}{predicate}{instruction}\n"
        f"@%p1 st.global.u32 [%d0+4], %r1;\n{stores}ret;\n}}\n"
    )


def modules(sm):
    """(name, PTX, kernels): one instruction a kernel, by a handle of the launch, by one of memory, and by name."""
    for name, setup, texture, surface in (
        ("handle", "", "%d8", "%d8"),
        ("loaded", "ld.global.u64 %d8, [%d8];\n", "%d8", "%d8"),
        ("named", "", "tex", "surf"),
    ):
        globals_ = ".global .texref tex;\n.global .surfref surf;\n" if name == "named" else ""
        instructions = [*textures(texture), *surfaces(surface)]
        yield name, HEADER.format(sm=sm) + globals_, [(setup, line) for line in instructions]
