//! Causes of errors and what to try, where the number of the error alone decides.

use nv_hw::fault::warp_esr;

/// Advice on some error numbers.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) numbers: &'static [u32],
    /// The likeliest first.
    pub(super) causes: &'static [&'static str],
    pub(super) tries: &'static [&'static str],
}

/// By the code of a warp error; the last row is for all others.
pub(super) const WARP_ERRORS: &[Known] = &[
    Known {
        numbers: &[warp_esr::INVALID_ADDR_SPACE],
        causes: &["an atomic on local memory, or a pointer of one space used by an instruction of another"],
        tries: &["compare the pointer with the windows: `nvdiag info` prints them"],
    },
    Known {
        numbers: &[warp_esr::ILLEGAL_INSTR_PARAM],
        causes: &[
            "a known instruction with a field that is not allowed: a barrier number, a modifier, a size",
        ],
        tries: &["compare the instruction with one the compiler made"],
    },
    Known {
        numbers: &[warp_esr::OOR_REG],
        causes: &["the launch grants fewer registers (or barriers) than the kernel uses"],
        tries: &["compare REGISTER_COUNT and BARRIER_COUNT of the QMD with `nvdiag disasm FILE.cubin`"],
    },
    Known {
        numbers: &[warp_esr::MISALIGNED_REG],
        causes: &[
            "hand-made code with a wide operand in a register that is not even, or not a multiple of four",
        ],
        tries: &["check the register numbers of the instruction"],
    },
    Known {
        numbers: &[warp_esr::MISALIGNED_PC, warp_esr::PC_OVERFLOW],
        causes: &[
            "an indirect branch or a return through an address that was overwritten or computed wrongly",
            "code that does not end in EXIT, or a program address in the QMD that is wrong",
        ],
        tries: &["check PROGRAM_ADDRESS of the QMD and the end of the kernel's code"],
    },
    Known {
        numbers: &[warp_esr::API_STACK_ERROR, 0x01, 0x16],
        causes: &["calls deeper than the call stack of the launch, recursion, or returns without calls"],
        tries: &["raise the call-stack size (SHADER_LOCAL_MEMORY_CRS_SIZE), or make the calls inline"],
    },
    Known {
        numbers: &[warp_esr::INVALID_CONST_ADDR_LDC],
        causes: &[
            "a constant bank that the launch does not bind, or an index past its end",
            "kernel arguments shorter than the kernel reads",
        ],
        tries: &["compare the constant buffers of the QMD with the banks of `nvdiag disasm FILE.cubin`"],
    },
    Known {
        numbers: &[warp_esr::MMU_FAULT, warp_esr::MMU_NACK],
        causes: &["an address that is not mapped; the MMU's own lines name it"],
        tries: &["find the first `[MMU FAULT]` line (nvgpu) or Xid 31 (desktop) of the same process"],
    },
    Known {
        numbers: &[warp_esr::TEX_FORMAT, warp_esr::TEX_LAYOUT],
        causes: &[
            "a texture header of another format or layout than the instruction expects, or a wrong index of it",
        ],
        tries: &["check the texture header's words"],
    },
    Known {
        numbers: &[warp_esr::ARRIVE],
        causes: &["more arrivals at an mbarrier than its count, or a barrier that was initialized twice"],
        tries: &["count arrivals of one phase against the barrier's initial count"],
    },
    Known {
        numbers: &[],
        causes: &["an error that this tool knows no cause for"],
        tries: &["report it with the lines below"],
    },
];

/// By the MMU's fault type; the last row is for all others.
pub(super) const MMU_FAULTS: &[Known] = &[
    Known {
        numbers: &[3],
        causes: &["a pointer that is not one: sign-extended, garbage, or a float read as an address"],
        tries: &["check the top 15 bits of the pointer"],
    },
    Known {
        numbers: &[4],
        causes: &["the channel was torn down, or its work names another subcontext"],
        tries: &["close channels after their work; check the VEID of SET_CHANNEL_INFO"],
    },
    Known {
        numbers: &[5],
        causes: &["an address in the driver's own part of the address space"],
        tries: &["compare the pointer with the end of the user range (`nvdiag vamap`)"],
    },
    Known {
        numbers: &[6],
        causes: &["a write to memory that was mapped read-only, or to a dma-buf opened read-only"],
        tries: &["check the map flags and access of that buffer"],
    },
    Known {
        numbers: &[10, 15],
        causes: &["an atomic on memory that does not take it: another aperture, or a kind without atomics"],
        tries: &["map the buffer as ordinary, cached system memory"],
    },
    Known {
        numbers: &[12],
        causes: &[
            "a page kind that does not fit the access, such as a compressible kind without a compression tag",
        ],
        tries: &["map with the generic kind"],
    },
    Known {
        numbers: &[14],
        causes: &["memory with an uncorrectable error"],
        tries: &["find ECC lines near it"],
    },
    Known {
        numbers: &[],
        causes: &["protected memory, or page-table bits that do not fit the access"],
        tries: &["walk the page tables from a memory dump: `nvdiag vamap --dump FILE --pdb ADDR`"],
    },
];
