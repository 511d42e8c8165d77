"""Every wrapper of a PTX instruction, operand by operand, against the signatures of the PTX ISA
(`tests.support.cuda.signatures`).

`problems` compares one printed function with its row. That it sees what is wrong is tested by
planting: each of `PLANTED` is one edit of a right wrapper, and a wrapper with it must have
problems.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from tests.cuda.codegen import test_golden
from tests.support.cuda.asm import Asm, functions
from tests.support.cuda.blackwell import gemm
from tests.support.cuda.signatures import CONSTRAINTS, TABLE, TYPES, Signature
from tilepipe import cuda
from tilepipe.cuda.codegen import tcgen05
from tilepipe.cuda.codegen.matrices import MatrixFormat
from tilepipe.cuda.ptx import strong_accesses, wrappers as ptx
from tilepipe.cuda.ptx.tcgen05 import TmemAccess
from tilepipe.cuda.ptx.wgmma import Instruction
from tilepipe.cuda.ptx.wrappers import SNIPPETS, Snippet
from tilepipe.ir import dtypes

ASM = [name for name, snippet in SNIPPETS.items() if "asm" in snippet.code]


def _given(text: str) -> dict[str, tuple[str, str]]:
    """Name in C++ -> (the ISA's name of the operand, its C++ type)."""
    found = {}
    for part in text.split():
        name, operand, *kind = part.removeprefix("=").split(":")
        found[name] = operand, kind[0] if kind else TYPES[operand]
    return found


def _renamed(instruction: str, named: dict[str, tuple[str, str]]) -> str:
    """An instruction with the ISA's names of its operands; its guard and opcode as they stand."""
    found = re.fullmatch(r"(@\w+ )?(\S+)(.*)", instruction)
    assert found is not None
    guard, opcode, operands = found.groups()
    words = re.sub(
        r"(?<![%\w.])[A-Za-z_]\w*", lambda m: named[m[0]][0] if m[0] in named else m[0], operands
    )
    return f"{guard or ''}{opcode}{words}"


def _operand_problems(statement: Asm, signature: Signature) -> Iterator[str]:
    if statement.volatile != signature.volatile:
        yield "volatile" if statement.volatile else "not volatile"
    if statement.memory != signature.memory:
        yield "clobbers memory" if statement.memory else "does not clobber memory"
    if set(statement.clobbers) - {"memory"}:
        yield f"clobbers {statement.clobbers}"


def problems(code: str, name: str, signature: Signature) -> list[str]:
    """The mistakes in the printed function of that name."""
    (wrapper,) = (f for f in functions(code) if f.name == name)
    parameters, others = _given(signature.parameters), _given(signature.locals)
    written = {part.split(":")[0][1:] for part in signature.locals.split() if part.startswith("=")}
    named, found = parameters | others, []
    if list(wrapper.parameters) != (
        wanted := [(kind, parameter) for parameter, (_, kind) in parameters.items()]
    ):
        found.append(f"takes {wrapper.parameters}, not {wanted}")
    printed = tuple(_renamed(i, named) for statement in wrapper.asm for i in statement.instructions)
    if printed != signature.syntax:
        found.append(f"{printed} is not {signature.syntax}")
    for statement in wrapper.asm:
        found += _operand_problems(statement, signature)
        for operand in statement.operands:
            kind = (operand.cast and {"u16": "u16"}[operand.cast]) or named.get(
                operand.value, ("", "float")
            )[1]
            if CONSTRAINTS[kind] != operand.constraint:
                found.append(f'"{operand.constraint}" for {operand.value}, which is {kind}')
            refers = named.get(operand.value, ("",))[0].startswith("ref-")
            writes = operand.value in written or refers
            if writes != (operand.direction == "="):
                found.append(f"{operand.value} is {'no ' if not writes else ''}output")
            if (
                operand.value in written
                and wrapper.result != "void"
                and not re.search(rf"return\b[^;]*\b{operand.value}\b", wrapper.body)
            ):
                found.append(f"{operand.value} is not returned")
    return found


def test_every_wrapper_has_a_row() -> None:
    """A new wrapper needs a row in tests/support/cuda/signatures.py: its syntax as the PTX ISA has
    it. Those of timed builds are several instructions each; tests/timeline/test_measured.py runs
    them by the reader of PTX.
    """
    for_the_compiler = {"keep_register", "pick", "unpack_again"}
    of_timed_builds = {name for name in ASM if name.startswith(("stamp_", "stamps_"))}
    assert set(ASM) - for_the_compiler - of_timed_builds == set(TABLE)
    assert all(signature.section for signature in TABLE.values())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TABLE)
def test_wrapper(name: str) -> None:
    assert problems(SNIPPETS[name].code, name, TABLE[name]) == []


def test_the_comment_names_the_section_of_the_instruction() -> None:
    """The comments of tcgen05 wrappers begin with the instruction."""
    for name, signature in TABLE.items():
        if signature.section.startswith("tcgen05"):
            assert SNIPPETS[name].code.startswith(f"// {signature.section.split(',')[0]}"), name


def test_keeping_registers_is_no_instruction() -> None:
    for wrapper in functions(SNIPPETS["keep_register"].code):
        (statement,) = wrapper.asm
        assert statement.instructions == ()
        assert (statement.volatile, statement.memory) == (True, True)
        (operand,) = statement.operands
        assert (operand.direction, operand.constraint) == (
            "+",
            {"float&": "f", "u32&": "r"}[wrapper.parameters[0][0]],
        )


# -- families --------------------------------------------------------------------------


def access_problems(access: TmemAccess, code: str) -> list[str]:
    """tcgen05.ld r, [taddr]; tcgen05.st [taddr], r: r has a register for each 32 bits that a thread
    moves.
    """
    (wrapper,) = functions(code)
    (statement,) = wrapper.asm
    count = access.count * (2 if access.register == "u32" else 4)
    registers = [f"x[{i}]" for i in range(count)]
    vector, loads = "{" + ", ".join(registers) + "}", access.verb == "ld"
    operands = f"{vector}, [address]" if loads else f"[address], {vector}"
    found = [] if access.registers == count else [f"{access.registers} registers"]
    shape = "16x128b" if access.register == "u32" else "16x256b"
    if statement.instructions != (
        wanted := f"tcgen05.{access.verb}.sync.aligned.{shape}.x{access.count}.b32 {operands}",
    ):
        found.append(f"{statement.instructions} is not {wanted}")
    letter = {"u32": "r", "float": "f"}[access.register]
    given = [("=" if loads else "", letter, x) for x in registers]
    given = [*given, ("", "r", "address")] if loads else [("", "r", "address"), *given]
    if [(o.direction, o.constraint, o.value) for o in statement.operands] != given:
        found.append("operands")
    pointer = f"{access.register}*" if loads else f"const {access.register}*"
    parameters = (
        [(pointer, "x"), ("u32", "address")] if loads else [("u32", "address"), (pointer, "x")]
    )
    if list(wrapper.parameters) != parameters:
        found.append(f"takes {wrapper.parameters}")
    # A load touches tensor memory alone, which no C++ code does: what it writes are its outputs.
    found += _operand_problems(statement, Signature("", "", (), "tcgen05.ld", memory=not loads))
    return found


@pytest.mark.parametrize("verb", ["ld", "st"])
@pytest.mark.parametrize(("register", "most"), [("float", 32), ("u32", 64)])
def test_accesses_to_tensor_memory(verb: str, register: str, most: int) -> None:
    for count in (1 << n for n in range(most.bit_length())):
        access = TmemAccess(verb, count, register)
        assert access_problems(access, access.snippet().code) == []


def wgmma_problems(i: Instruction, code: str) -> list[str]:
    """wgmma.mma_async d, a, b-desc, scale-d, imm-scale-a, imm-scale-b, imm-trans-a, imm-trans-b:
    the last two of 16 bits alone, and imm-trans-a only where a is a descriptor.
    """
    (wrapper,) = functions(code)
    (statement,) = wrapper.asm
    types = {
        dtypes.bfloat16: "bf16",
        dtypes.float16: "f16",
        dtypes.float32: "tf32",
        dtypes.float8_e4m3: "e4m3",
        dtypes.float8_e5m2: "e5m2",
    }
    registers = [f"d[{r}]" for r in range(i.n // 2)]
    a = [f"a{r}" for r in range(4)] if i.a_in_registers else ["a"]
    flags = ["scale_d" if i.scale_d else "true", "1", "1"]
    if i.b.nbytes == 2:
        flags += [] if i.a_in_registers else [str(int(i.transposed_a))]
        flags.append(str(int(i.transposed_b)))
    left = "{" + ", ".join(a) + "}" if i.a_in_registers else "a"
    head = (
        f"wgmma.mma_async.sync.aligned.m64n{i.n}k{32 // i.a.nbytes}.f32.{types[i.a]}.{types[i.b]}"
    )
    wanted = f"{head} {{{', '.join(registers)}}}, {left}, b, {', '.join(flags)}"
    found = (
        [] if statement.instructions == (wanted,) else [f"{statement.instructions} is not {wanted}"]
    )
    given = (
        [("+", "f", d) for d in registers]
        + [("", "r" if i.a_in_registers else "l", x) for x in a]
        + [("", "l", "b")]
    )
    given += [("", "r", "scale_d")] if i.scale_d else []
    if [(o.direction, o.constraint, o.value) for o in statement.operands] != given:
        found.append("operands")
    parameters = [
        ("float", "d"),
        *(("u32" if i.a_in_registers else "u64", x) for x in a),
        ("u64", "b"),
    ]
    if list(wrapper.parameters) != parameters + ([("i32", "scale_d")] if i.scale_d else []):
        found.append(f"takes {wrapper.parameters}")
    # The fence before it and the wait behind it clobber memory; it does not, or each would be a
    # barrier to the compiler.
    return [
        *found,
        *_operand_problems(statement, Signature("", "", (), "wgmma.mma_async", memory=False)),
    ]


WGMMAS = [
    Instruction(n, a, b, in_registers, transposed_a, transposed_b, scale_d)
    for n, (a, b), in_registers, transposed_a, transposed_b, scale_d in product(
        (8, 64, 256),
        [(t, t) for t in (dtypes.bfloat16, dtypes.float16, dtypes.float32)]
        + list(product((dtypes.float8_e4m3, dtypes.float8_e5m2), repeat=2)),
        (False, True),
        (False, True),
        (False, True),
        (False, True),
    )
    if not (in_registers and transposed_a) and (b.nbytes == 2 or not (transposed_a or transposed_b))
]


@pytest.mark.slow
def test_wgmma() -> None:
    assert len(WGMMAS) == 3 * (2 * 12 + 5 * 4)
    for instruction in WGMMAS:
        assert wgmma_problems(instruction, instruction.snippet().code) == []


# -- what is planted -------------------------------------------------------------------

MMA, MXF4, LOAD = "tcgen05_mma_f16", "tcgen05_mma_mxf4", "tma_load_multicast_2d"
# Of a wrapper, what is replaced by what.
PLANTED = [
    (MMA, '"l"(a), "l"(b)', '"l"(b), "l"(a)'),
    (MMA, "[%0], %1, %2, %3, p", "[%0], %2, %1, %3, p"),
    (MMA, "u64 a, u64 b", "u64 b, u64 a"),
    (MMA, "setp.ne.b32 p, %4, 0", "setp.ne.b32 p, %3, 0"),
    (MMA, "setp.ne.b32", "setp.eq.b32"),
    (MMA, "%3, p;", "%3, !p;"),
    (MMA, "cta_group::1", "cta_group::2"),
    (MMA, "kind::f16", "kind::tf32"),
    (MMA, ' : "memory"', ""),
    (MMA, ' : "memory"', ' : "cc"'),
    (MMA, " volatile", ""),
    (MMA, '"r"(shape)', '"r"(accumulate)'),
    ("tcgen05_mma_f16_pair", "cta_group::2", "cta_group::1"),
    ("tcgen05_mma_f16_tmem_a", "[%1]", "%1"),
    (MXF4, '"r"(sfa), "r"(sfb)', '"r"(sfb), "r"(sfa)'),
    (MXF4, "[%4], [%5]", "[%5], [%4]"),
    (MXF4, "u32 sfa, u32 sfb", "u32 sfb, u32 sfa"),
    (MXF4, ".block32", ".block16"),
    (MXF4, ".block_scale", ""),
    ("tcgen05_mma_mxf4nvf4", ".block16", ".block32"),
    ("tmem_copy_32x128b_warpx4", ".warpx4", ""),
    ("tmem_copy_128x128b", "128x128b [", "128x256b ["),
    ("tmem_copy_128x128b", '"r"(dst), "l"(src)', '"r"(src), "r"(dst)'),
    ("tcgen05_commit_multicast", ".multicast::cluster", ""),
    ("tcgen05_commit_multicast", ", %1;", ";"),
    ("tcgen05_commit_multicast_pair", ".shared::cluster", ""),
    ("tcgen05_commit", ".mbarrier::arrive::one", ""),
    ("tcgen05_fence_before", "fence::before", "fence::after"),
    ("tcgen05_fence_after", '::: "memory"', ""),
    ("tmem_wait_load", "wait::ld", "wait::st"),
    ("tmem_alloc", "[%0], %1", "[%1], %0"),
    ("tmem_dealloc", '"r"(address), "r"(columns)', '"r"(columns), "r"(address)'),
    (LOAD, ".multicast::cluster", ""),
    (LOAD, ", %5;", ";"),
    (LOAD, "{%3, %4}", "{%4, %3}"),
    (LOAD, '"h"(ctas)', '"r"(ctas)'),
    (LOAD, "u32 bar, u16 ctas", "u16 ctas, u32 bar"),
    ("tma_load_pair_2d", ".cta_group::2", ""),
    ("tma_store_2d", ".bulk_group", ""),
    ("tma_store_2d", "[%1, {%2, %3}], [%0]", "[%1, {%2, %3}], [%2]"),
    ("try_wait", "[%1], %2", "[%2], %1"),
    ("try_wait", "selp.u32 %0, 1, 0, p", "selp.u32 %0, 0, 1, p"),
    ("try_wait", "return done;", "return true;"),
    ("try_wait_cluster", ".acquire.cluster", ""),
    ("try_wait_cluster", ".parity", ""),
    ("arrive_expect_tx", ".expect_tx", ""),
    ("expect_tx_remote", "relaxed.cluster", "relaxed.cta"),
    ("mbarrier_init", "[%0], %1", "[%1], %0"),
    ("named_sync", "%0, %1", "%1, %0"),
    ("on_cta", "%1, %2", "%2, %1"),
    ("fence_proxy_async", ".async", ""),
    ("fence_mbarrier_init", ".cluster", ".cta"),
    ("bulk_wait_read", ".read", ""),
    ("wgmma_wait", ' : "memory"', ""),
    ("stmatrix_x4", "{%1, %2, %3, %4}", "{%1, %3, %2, %4}"),
    ("stmatrix_x4_trans", ".trans", ""),
    ("pack_bf16", '"f"(hi), "f"(lo)', '"f"(lo), "f"(hi)'),
    ("pack_e4m3", '"f"(hi), "f"(lo)', '"f"(lo), "f"(hi)'),
    ("load_i8", ".s8", ".u8"),
    ("store_u16_remote", "shared::cluster", "shared::cta"),
    ("clc_first_cta", "@p ", ""),
    ("clc_try_cancel", "[%0], [%1]", "[%1], [%0]"),
    ("elect_of", "%1;", "0xffffffff;"),
]


@pytest.mark.parametrize(("name", "old", "new"), PLANTED, ids=str)
def test_a_planted_error_is_seen(name: str, old: str, new: str) -> None:
    code = SNIPPETS[name].code
    spoiled = code.replace(old, new)
    assert spoiled != code
    assert problems(spoiled, name, TABLE[name])


def test_errors_planted_in_families_are_seen() -> None:
    load, store = TmemAccess("ld", 2, "float"), TmemAccess("st", 2, "u32")
    for access, old, new in (
        (load, "%0, %1", "%1, %0"),
        (load, " volatile", ""),
        (load, "16x256b", "16x128b"),
        (load, ".x2", ".x4"),
        (load, '"=f"(x[3])', '"=f"(x[2])'),
        (store, '        : "memory");', ");"),
        (store, "[%0]", "[%1]"),
        (store, '"r"(address),', '"r"(x[0]),'),
    ):
        code = access.snippet().code
        assert old in code
        assert access_problems(access, code.replace(old, new)), (access, old)
    plain = Instruction(8, dtypes.bfloat16, dtypes.bfloat16, scale_d=True)
    for old, new in (
        ('"l"(a), "l"(b)', '"l"(b), "l"(a)'),
        ("p, 1, 1", "p, 1, -1"),
        ("1, 0, 0;", "1, 1, 0;"),
        ("+f", "=f"),
        (" volatile", ""),
    ):
        code = plain.snippet().code
        assert old in code
        assert wgmma_problems(plain, code.replace(old, new)), old


def _replaced(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        code = SNIPPETS[name].code.replace(old, new)
        assert code != SNIPPETS[name].code
        monkeypatch.setitem(ptx.SNIPPETS, name, Snippet(name, code, SNIPPETS[name].needs))

    return plant


def _scale_copies_of_64_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tcgen05,
        "MatrixFormat",
        lambda swizzle, leading, stride, *rest: MatrixFormat(swizzle, leading, stride // 2, *rest),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (
            _replaced("scale_ids", "<< 4", "<< 5"),
            lambda: test_golden.test_instruction_descriptors_with_scale_factors("mxf8f6f4"),
        ),
        (
            _replaced("scale_ids", "<< 29", "<< 28"),
            lambda: test_golden.test_instruction_descriptors_with_scale_factors("mxf4"),
        ),
        (
            _replaced("scale_ids", "byte << 4 | ", ""),
            lambda: test_golden.test_instruction_descriptors_with_scale_factors("mxf4"),
        ),
        (
            _replaced("matrix_start", ">> 4", ">> 3"),
            lambda: test_golden.test_shared_memory_descriptors("bf16"),
        ),
        (
            _replaced("matrix_start", "0x3ffff", "0xffff"),
            lambda: test_golden.test_shared_memory_descriptors("e2m1"),
        ),
        (_scale_copies_of_64_bytes, test_golden.test_copies_of_scale_factors),
    ],
)
def test_planted_bits_are_seen(
    plant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_a_printed_kernel_has_the_wrappers_as_they_stand_here() -> None:
    code = cuda.source(gemm(), "sm_100a")
    head = code[: code.index("// ---- shared memory")]
    printed = {f.name for f in functions(head)}
    assert {"tmem_alloc", "tcgen05_commit", MMA} <= printed
    for name in printed & TABLE.keys():
        assert problems(head, name, TABLE[name]) == []


# -- strong accesses -------------------------------------------------------------------

# PTX ISA, atom, red: the types of each operation
_INTEGER = {"i32": "s32", "u32": "u32", "i64": "s64", "u64": "u64"}
_FLOAT = {"float": "f32", "double": "f64", "f16": "noftz.f16", "bf16": "noftz.bf16"}
_BITS = {"i32": "b32", "u32": "b32", "i64": "b64", "u64": "b64"}
ISA_TYPES: dict[str, dict[str, str]] = {
    "add": _INTEGER | {"i64": "u64"} | _FLOAT,
    "min": _INTEGER,
    "max": _INTEGER,
    "and": _BITS,
    "or": _BITS,
    "xor": _BITS,
    "exchange": _BITS | {"float": "b32", "double": "b64"},
    "cas": _BITS,
}
ISA_NAMES = {"exchange": "exch"}


@pytest.mark.parametrize("operation", ISA_TYPES)
def test_atomic_operations(operation: str) -> None:
    for kind, of_ptx in ISA_TYPES[operation].items():
        for order, scope in product(
            ("relaxed", "acquire", "release", "acq_rel"), ("cta", "cluster", "gpu", "sys")
        ):
            for returns in (True, False):
                if not returns and (operation in ("exchange", "cas") or "acq" in order):
                    continue  # red has no such form
                form = strong_accesses.Atomic(operation, kind, order, scope, returns)  # type: ignore[arg-type]
                c_type = "u16" if kind in ("f16", "bf16") else kind
                name = ISA_NAMES.get(operation, operation)
                values = "compare, value" if operation == "cas" else "value"
                head = f"{'atom' if returns else 'red'}.{order}.{scope}.global.{name}.{of_ptx}"
                target = "old, [address]" if returns else "[address]"
                signature = Signature(
                    " ".join(
                        f"{v}:{v}:{c_type}{'*' if v == 'address' else ''}"
                        for v in ("address", *values.split(", "))
                    ),
                    f"=old:old:{c_type}" if returns else "",
                    (f"{head} {target}, {values}",),
                    "atom",
                )
                assert problems(form.snippet().code, form.name, signature) == []


def test_reductions_of_two_neighbours() -> None:
    given = {
        "float": ("address:address:float* x:x:float y:y:float", "v2.f32 [address], {x, y}"),
        "f16": ("address:address:u16* pair:pair:u32", "noftz.f16x2 [address], pair"),
        "bf16": ("address:address:u16* pair:pair:u32", "noftz.bf16x2 [address], pair"),
    }
    for kind, (operands, form) in given.items():
        text = f"red.relaxed.gpu.global.add.{form}"
        snippet = strong_accesses.add_pair(kind)
        signature = Signature(operands, "", (text,), "red")
        assert problems(snippet.code, snippet.name, signature) == []
        assert problems(snippet.code.replace("relaxed", "release"), snippet.name, signature)


def test_reductions_of_a_vector() -> None:
    names = ["x0", "x1", "x2", "x3"]
    operands = " ".join(["address:address:u16*", *(f"{x}:{x}:u32" for x in names)])
    for kind in ("f16", "bf16"):
        text = f"red.relaxed.gpu.global.add.noftz.v4.{kind}x2 [address], {{{', '.join(names)}}}"
        snippet = strong_accesses.add_vector(kind)
        assert problems(snippet.code, snippet.name, Signature(operands, "", (text,), "red")) == []
        wrong = snippet.code.replace("noftz.v4", "v4")
        assert problems(wrong, snippet.name, Signature(operands, "", (text,), "red"))


@pytest.mark.parametrize("kind", ["i32", "u32", "i64", "u64", "float", "double"])
def test_strong_loads_and_stores(kind: str) -> None:
    bits = "b64" if kind in ("i64", "u64", "double") else "b32"
    for scope in ("cta", "cluster", "gpu", "sys"):
        for order in ("relaxed", "acquire"):
            snippet = strong_accesses.load(kind, order, scope)
            syntax = f"ld.{order}.{scope}.global.{bits} x, [address]"
            signature = Signature(f"address:address:{kind}*", f"=x:x:{kind}", (syntax,), "ld")
            assert problems(snippet.code.replace("const ", ""), snippet.name, signature) == []
        for order in ("relaxed", "release"):
            snippet = strong_accesses.store(kind, order, scope)
            syntax = f"st.{order}.{scope}.global.{bits} [address], x"
            signature = Signature(f"address:address:{kind}* x:x:{kind}", "", (syntax,), "st")
            assert problems(snippet.code, snippet.name, signature) == []
        for order in ("acq_rel", "sc"):
            snippet = strong_accesses.fence(order, scope)
            signature = Signature("", "", (f"fence.{order}.{scope}",), "membar/fence")
            assert problems(snippet.code, snippet.name, signature) == []
