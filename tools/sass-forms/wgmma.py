"""PTX of every matrix product of a warpgroup (sm_90a): shapes, element types, sparsity, signs, transposition."""
import itertools

HEADER = ".version 8.5\n.target sm_90a\n.address_size 64\n"


def kinds():
    """(k, type of the sum, types of A and B, whether elements can be negated, transposed)."""
    for element, k in (("f16", 16), ("bf16", 16), ("tf32", 8)):
        for total in ("f32", "f16") if element == "f16" else ("f32",):
            yield k, total, element, element, True, element != "tf32"
    for a, b in itertools.product(("e4m3", "e5m2"), repeat=2):
        for total in ("f32", "f16"):
            yield 32, total, a, b, True, False
    for a, b in itertools.product(("s8", "u8"), repeat=2):
        yield 32, "s32", a, b, False, False
    yield 256, "s32", "b1", "b1", False, False


def vector(letter, count):
    return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"


def ends(signs, transposed, a_in_registers):
    """Negation and transposition, which stand last; A in registers cannot be transposed."""
    if not signs:
        yield ""
        return
    ways = [()]
    if transposed:
        ways = itertools.product((0, 1), repeat=1 if a_in_registers else 2)
    for (a, b), way in itertools.product(itertools.product((1, -1), repeat=2), list(ways)):
        yield f", {a}, {b}" + "".join(f", {bit}" for bit in way)


def products():
    """(registers of the sum, their letter, instruction)."""
    for (k, total, a, b, signs, transposed), sparse, in_registers in itertools.product(kinds(), (False, True), (False, True)):
        if sparse and a == "b1":
            continue
        every = list(ends(signs, transposed, in_registers))
        for n, scale in itertools.product(range(8, 257, 8), ("%p1", "1", "0")):
            # All ends for one shape, one end for the other shapes.
            for end in every if n == 64 else every[:1]:
                for clamp in ("", ".satfinite") if a in ("s8", "u8") else ("",):
                    name = f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m64n{n}k{2 * k if sparse else k}.{total}.{a}.{b}"
                    name += ".and.popc" if a == "b1" else clamp
                    letter, count = ("f", n // 2) if total == "f32" else ("r", n // 4 if total == "f16" else n // 2)
                    source = "{%a0, %a1, %a2, %a3}" if in_registers else "%d1"
                    selectors = ", %m0, 0" if sparse else ""
                    yield count, letter, f"{name} {vector(letter, count)}, {source}, %d2{selectors}, {scale}{end};"


def kernel(number, count, letter, instruction):
    kind = "f32" if letter == "f" else "b32"
    loads = "".join(f"ld.global.{kind} %{letter}{i}, [%d0+{4 * i}];\n" for i in range(count))
    stores = "".join(f"st.global.{kind} [%d0+{4 * i}], %{letter}{i};\n" for i in range(count))
    loads += "".join(f"ld.global.u32 %a{i}, [%d0+{5000 + 4 * i}];\n" for i in range(4))
    return (
        f".visible .entry k{number}(.param .u64 o, .param .u64 a, .param .u64 b) {{\n"
        ".reg .f32 %f<128>; .reg .b32 %r<128>; .reg .b64 %d<3>; .reg .pred %p<2>; .reg .b32 %a<4>; .reg .b32 %m<1>;\n"
        "ld.param.u64 %d0, [o];\nld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\nld.global.u32 %m0, [%d0+4096];\n"
        f"setp.ne.u32 %p1, %m0, 0;\n{loads}wgmma.fence.sync.aligned;\n{instruction}\n"
        f"wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned {number % 8};\n{stores}ret;\n}}\n"
    )


def modules(size=200):
    """Kernels of one instruction each, so many to a module."""
    all_ = list(products())
    for start in range(0, len(all_), size):
        yield [kernel(start + i, *line) for i, line in enumerate(all_[start:start + size])]
