//! Likely causes and remedies, by the error and by the facts known about it.

use nv_hw::fault::warp_esr;
use sass::Space;

use crate::catalogue::{self, Class};
use crate::fault::causes::{Known, MMU_FAULTS, WARP_ERRORS};
use crate::fault::mmu::MmuFault;
use crate::fault::report::{FaultReport, Subject, WindowTrap};
use crate::fault::sm::SmRecord;
use crate::kernel_log::Entry;
use crate::kernel_log::lines::Kind;
use crate::process_map::code::access_of;
use crate::process_map::host::{HostRange, is_like_host};
use crate::process_map::map::ProcessMap;

struct Advice {
    causes: Vec<String>,
    tries: Vec<String>,
}

impl Advice {
    fn cause(&mut self, text: impl Into<String>) {
        self.causes.push(text.into());
    }

    fn attempt(&mut self, text: impl Into<String>) {
        self.tries.push(text.into());
    }

    /// Adds the advice that a table has on an error number; its last row is for the numbers that it does not
    /// name.
    fn known(&mut self, table: &[Known], number: u32) {
        let row = table.iter().find(|row| row.numbers.contains(&number)).or(table.last());
        if let Some(row) = row {
            row.causes.iter().for_each(|text| self.cause(*text));
            row.tries.iter().for_each(|text| self.attempt(*text));
        }
    }
}

/// Causes and attempts, the likeliest first.
pub(super) fn advise(
    report: &FaultReport,
    blamed: Option<&Entry>,
    map: &ProcessMap,
) -> (Vec<String>, Vec<String>) {
    let mut advice = Advice { causes: Vec::new(), tries: Vec::new() };
    match report.subject {
        Subject::Sm => sm(&mut advice, report, map),
        Subject::Mmu => mmu(&mut advice, report, map),
        Subject::FrontEnd => front_end(&mut advice, report, blamed),
        Subject::Pushbuffer => {
            advice.cause("a hand-built pushbuffer or ring entry that the host does not accept");
            advice.cause("memory of the ring or the pushbuffer that was overwritten or reused while in work");
            advice.attempt("dump the pushbuffer and decode it: `nvdiag pushbuf FILE`");
            advice.attempt("print the words around the last method of the notes above");
        }
        Subject::Copy => {
            advice.cause("an address, pitch or size that the copy engine does not take");
            advice.attempt("check alignment and pitch of the transfer; decode it with `nvdiag pushbuf FILE`");
        }
        Subject::Timeout if report.xid == Some(109) => channel(&mut advice, report),
        Subject::Timeout => timeout(&mut advice, report, blamed),
        Subject::Hardware => {
            advice.cause("a memory cell of the GPU that failed, by chance or for good");
            advice.attempt("run again: an error that comes back at the same place is a defect");
            advice.attempt("check temperature and supply; a board that keeps reporting uncorrected errors needs replacing");
        }
        Subject::Firmware => {
            advice.cause(
                "a context buffer that was unmapped or overwritten, or a fault while contexts were switched",
            );
            advice.attempt("find an earlier fault of the same boot; reboot if the GPU accepts no more work");
        }
        Subject::Register => {
            advice
                .cause("a register that does not exist on this chip, is powered down, or may not be reached");
            advice.attempt("find who reads registers: a debugger, a profiler, or a tool with REG_OPS");
            advice.attempt("if nobody does, the driver and the firmware are of different releases");
        }
        Subject::Driver => driver(&mut advice, blamed),
        Subject::Channel => channel(&mut advice, report),
        Subject::Platform => platform(&mut advice, blamed),
    }
    if report.code.is_empty() && report.sms.iter().any(|sm| sm.pc.is_some() && sm.is_error()) {
        match map.has_code() {
            true => advice.attempt("the pc lies in none of the programs given: check --cubin FILE@BASE"),
            false => advice.attempt(
                "name the instruction: `nvdiag esr --cubin FILE[:KERNEL][@BASE]`, or run the program with HCQ_MAP_DIR set and give \
                 the file it writes with --map",
            ),
        }
    }
    (advice.causes, advice.tries)
}

/// A channel that was stopped. Its Xid names the reason, or that the reason is another line's.
fn channel(advice: &mut Advice, report: &FaultReport) {
    match report.xid.and_then(catalogue::xid) {
        Some(known) if known.class != Class::Consequence && known.number != 43 => {
            known.also.iter().for_each(|class| advice.cause(format!("also: {}", class.words())));
        }
        _ => match report.previous {
            Some(number) => advice.cause(format!("Xid {number}, as the driver says")),
            None => {
                advice.cause("an earlier error, or the end of the program while its work was running");
                advice.attempt("find the first line about this process or channel further up in the log");
            }
        },
    }
}

fn sm(advice: &mut Advice, report: &FaultReport, map: &ProcessMap) {
    let Some(record) = report.sms.iter().find(|sm| sm.is_error()).or(report.sms.first()) else {
        advice.cause("an exception whose record is not part of this log");
        advice.attempt(
            "find the `sm err state` line; `nvdiag esr --pid PID` reads the record from a live process",
        );
        return;
    };
    if let Some(trap) = &report.window_trap {
        window_trap(advice, trap);
    }
    warp_error(advice, report, record);
    if record.pc.is_none() && map.has_code() {
        advice.attempt("the desktop driver's log has no pc: hcq's own report of the fault has it");
    }
}

fn window_trap(advice: &mut Advice, trap: &WindowTrap) {
    match (&trap.mapping, &trap.window) {
        (Some(mapping), Some(window)) => advice.cause(format!(
            "the {} at {} lies in the {window} window: the SM takes its addresses for shared or local memory",
            mapping.what, mapping.va
        )),
        _ => advice.cause(
            "a buffer lies inside the shared- or local-memory window: the SM takes its addresses for that memory \
             (on Tegra the driver hands out addresses near the windows first)",
        ),
    }
    advice.attempt(
        "reserve the windows before mapping anything: AS ALLOC_SPACE with a fixed offset at each base, 16 MiB at least \
         (hcq does; `nvdiag vamap --pid PID` shows what lies there)",
    );
}

/// By the code of the warp error, and by the instruction where that is known.
fn warp_error(advice: &mut Advice, report: &FaultReport, record: &SmRecord) {
    let instruction = report.code.iter().find(|c| c.certain).and_then(|c| c.instruction());
    let access = instruction.and_then(access_of);
    let width = access.map(|(_, width)| width);
    match record.warp_esr.code {
        0 if record.global_esr.bits.iter().any(|b| b == "BPT_INT") => {
            advice.cause("a trap instruction (BPT), as assert() and __trap() compile to");
            advice.attempt("find the check in the kernel that leads to it");
        }
        0 => {
            advice.cause("no fault of a program: this SM was stopped, or its record had been cleared");
            advice.attempt("check the other SMs of the same incident");
        }
        warp_esr::MISALIGNED_ADDR => {
            match width {
                Some(width) if width > 1 => {
                    advice
                        .cause(format!("the address is not a multiple of {width}, the width of this access"));
                }
                _ => advice
                    .cause("an address that is not a multiple of the access width (8 for .64, 16 for .128)"),
            }
            advice.cause("a packed struct or a byte offset cast to a vector type; a buffer base or row stride that is not aligned");
            advice.attempt(
                "check the low bits of the base and the stride against the width of the instruction",
            );
        }
        warp_esr::OOR_ADDR => {
            match access {
                Some((Space::Shared, _)) => {
                    advice.cause("a shared-memory offset past the size that the launch grants")
                }
                Some((Space::Local, _)) => {
                    advice.cause("a stack offset past the local memory of a thread: an index out of an array, or recursion");
                }
                _ => advice.cause(
                    "a shared-memory offset, a stack offset or a generic pointer past what the launch grants",
                ),
            }
            advice.cause("dynamic shared memory, or the local-memory size, set smaller in the launch than the kernel uses");
            advice.attempt("compare the sizes in the launch descriptor with `nvdiag disasm FILE.cubin`; decode it with `nvdiag qmd`");
        }
        warp_esr::ILLEGAL_INSTR_ENCODING if instruction.is_some_and(|text| text.contains("BPT")) => {
            advice.cause("a trap instruction (BPT), as assert() and __trap() compile to: without a debugger it is reported so");
            advice.attempt("find the check in the kernel that leads to it");
        }
        warp_esr::ILLEGAL_INSTR_ENCODING => {
            match instruction {
                Some(text) if !text.contains("unknown") && !text.contains("not ") && access_of(text).is_some() => advice.cause(
                    "the cubin holds a good instruction here: the code in memory was overwritten, never uploaded, or is stale in \
                     the instruction cache",
                ),
                _ => advice.cause("code for another architecture, a word that is no instruction, or a jump into data"),
            }
            advice.cause(
                "a code buffer that was not written, or was freed and reused, before the launch ended",
            );
            advice.cause("new code at an old address without invalidating the instruction cache");
            advice.attempt("compare the bytes at the pc with the cubin; check the cubin's architecture with `nvdiag disasm`");
        }
        other => advice.known(WARP_ERRORS, other),
    }
}

fn mmu(advice: &mut Advice, report: &FaultReport, map: &ProcessMap) {
    let Some(fault) = report.mmu.first() else {
        advice.cause("a fault whose record is not part of this log");
        advice.attempt("find an `[MMU FAULT]` line near it");
        return;
    };
    let address = fault.address.map_or(0, |a| a.0);
    let client = fault.client.as_deref().unwrap_or("");
    if client.starts_with("esc") {
        advice.cause("a ring entry or a pushbuffer at an address that is not mapped (an entry of zeros, where it is 0)");
        advice.attempt("compare the address with the ring and the pushbuffers; decode the ring with `nvdiag pushbuf --gpfifo`");
    }
    if client.starts_with("gcc") {
        advice.cause(
            "a constant bank or a program address that is not mapped: freed too early, or wrong in the QMD",
        );
        advice.attempt("check PROGRAM_ADDRESS and the constant buffers of the QMD: `nvdiag qmd FILE`");
    }
    if client.starts_with("sked") || client.starts_with("fe0") {
        advice.cause("the address of a launch descriptor, or of a semaphore it releases, is not mapped");
    }
    match fault.fault_type {
        Some(0..=2) | None => not_mapped(advice, report, address, map),
        Some(other) => advice.known(MMU_FAULTS, other),
    }
}

/// Nothing is mapped at the address.
fn not_mapped(advice: &mut Advice, report: &FaultReport, address: u64, map: &ProcessMap) {
    let near = report.access.as_ref();
    let host = near.and_then(|near| near.host.as_ref()).map(HostRange::words);
    let is_nvgpu = report.device.as_deref().is_none_or(|device| device.ends_with(".gpu"));
    if host.is_some() || is_nvgpu && is_like_host(address) && near.is_none_or(|n| n.mapping.is_none()) {
        let by = if report.mmu.iter().any(MmuFault::is_of_copy) { "the copy engine" } else { "the GPU" };
        let place = host.map_or("where Linux puts a process's own memory".to_owned(), |host| {
            format!("in the process's own {host}")
        });
        advice.cause(format!("a host pointer was given to {by}: the address lies {place}"));
        advice.attempt("pass the buffer's GPU address; memory that the CPU allocated has none until it is mapped for the GPU");
    }
    if address < 0x1_0000 {
        advice.cause("a null pointer, or an offset used as a pointer");
    }
    if let Some(mapping) = near.and_then(|n| n.mapping.as_ref()) {
        advice.cause(format!(
            "the {} at {} was mapped later, or unmapped while work was running",
            mapping.what, mapping.va
        ));
    }
    match near.and_then(|n| n.distance_bytes.zip(n.nearest.as_ref())) {
        Some((d, m)) if (1..=0x10_0000).contains(&d) => {
            advice.cause(format!("an index past the end of the {} at {}", m.what, m.va));
        }
        Some((d, m)) if (-0x10_0000..0).contains(&d) => {
            advice.cause(format!("a negative index, or one that wrapped, before the {} at {}", m.what, m.va));
        }
        _ if map.mappings.is_empty() => advice.cause("an index past the end of a buffer, or a wrong pointer"),
        _ => advice.cause("a wrong pointer: nothing is mapped near it"),
    }
    advice.cause("a buffer that was freed while work that uses it was still running");
    if map.mappings.is_empty() {
        advice.attempt("see what is mapped near it: `nvdiag vamap --pid PID --json > map.json`, then `nvdiag esr --map map.json`");
    }
    advice.attempt("wait for the work before freeing what it uses");
}

fn front_end(advice: &mut Advice, report: &FaultReport, blamed: Option<&Entry>) {
    let name = report.what.name.as_str();
    match blamed.map(|e| e.kind) {
        Some(Kind::SkedException | Kind::XidSked) => {
            if name.contains("MEMORY_WINDOW_OVERLAP") {
                advice.cause("the window methods were not sent, so both windows are at 0");
                advice.attempt(
                    "send SET_SHADER_SHARED_MEMORY_WINDOW (0x2a0, 0x2a4) and SET_SHADER_LOCAL_MEMORY_WINDOW (0x7b0, 0x7b4) before \
                     the first launch",
                );
            } else if name.contains("LOCAL_MEMORY") {
                advice.cause("the local-memory methods (0x790, 0x794, 0x2e4) are missing, or smaller than the launch asks for");
                advice.attempt("set up scratch memory for the largest kernel before the launch");
            } else {
                advice.cause("a field of the launch descriptor that the hardware rejects");
            }
            advice.attempt("dump the launch descriptor and check it: `nvdiag qmd FILE`");
        }
        Some(Kind::FeException | Kind::XidClassMismatch | Kind::XidUnitEsr) => {
            advice.cause("methods sent to a subchannel that holds another class (compute belongs on subchannel 1, copies on 4)");
            advice.attempt("check the subchannel of SET_OBJECT and of the methods: `nvdiag pushbuf FILE`");
        }
        Some(Kind::MemfmtException) => {
            advice.cause("LOAD_INLINE_DATA words do not match LINE_LENGTH_IN times LINE_COUNT");
            advice.attempt("count the inline words: `nvdiag pushbuf FILE`");
        }
        Some(Kind::FirmwareMethod) => {
            advice.cause("a method that sets a register the firmware does not allow (a debugger's, or of another class)");
            advice.attempt("find the method in the pushbuffer: `nvdiag pushbuf FILE`");
        }
        _ => {
            advice.cause("a method of another class or generation, or with a value out of its range");
            advice.attempt("decode the pushbuffer and find the method: `nvdiag pushbuf FILE`");
        }
    }
}

fn timeout(advice: &mut Advice, report: &FaultReport, blamed: Option<&Entry>) {
    if blamed.is_some_and(|e| e.kind == Kind::AcquireTimeout) || report.what.code.is_some_and(|c| c.0 == 24) {
        advice.cause("a wait for a value that nothing releases: a signal that is missing, or a wait that is ahead of it");
        advice.cause("the work that should release it was stopped, or follows this wait in the same queue");
        advice.attempt(
            "compare address and payload of the semaphore in the notes with the program's timelines",
        );
        return;
    }
    advice.cause("a kernel in an endless loop, or one that waits for a value that never comes");
    advice.cause("a kernel that is only long, beside other users of the GPU: the driver waits a few seconds for it to leave");
    advice.cause("a grid that waits for blocks which do not fit on the GPU beside it");
    advice.attempt("run it alone and with less work; bound every spin loop of the kernel");
    advice.attempt("split long kernels, or raise the channel's timeout (SET_TIMEOUT of the channel)");
}

fn driver(advice: &mut Advice, blamed: Option<&Entry>) {
    match blamed.map(|e| e.kind) {
        Some(Kind::AllocationFailed) => {
            advice.cause("the driver found no contiguous memory of that size (CMA, or fragmentation)");
            advice.attempt("enlarge CMA (cma= on the kernel command line), or reboot; `nvdiag doctor` shows what there is");
        }
        Some(Kind::BringUpFailed) => {
            advice.cause("an earlier line of the same boot says which step failed");
            advice.attempt(
                "read the lines before it; check that firmware and L4T are of one release (`nvdiag doctor`)",
            );
        }
        Some(Kind::Quiesce | Kind::RecoveryFailed) => {
            advice.cause("an earlier fault that the driver could not clean up");
            advice.attempt("reboot; then find the fault before it");
        }
        _ => {
            advice.cause("a list of channels that the driver or another program left in a bad state");
            advice.attempt("reboot if it comes back; report it with the lines below");
        }
    }
}

fn platform(advice: &mut Advice, blamed: Option<&Entry>) {
    match blamed.map(|e| e.kind) {
        Some(Kind::SmmuFault | Kind::SmmuGlobal | Kind::SmmuStatus | Kind::SmmuSyndrome) => {
            advice.cause("a device that uses the SMMU accessed an address that is not mapped for it");
            advice.cause("on Orin the GPU does not go through the SMMU: this is a video, camera, network or other engine");
            advice.attempt("match the stream id (cbfrsynra & 0x7f) with the device tree");
        }
        Some(Kind::MemoryController) => {
            advice.cause("an access outside memory, or into a protected part of it");
            advice.attempt("the client names the unit; nvl0 to nvl2 are the GPU's ports");
        }
        Some(Kind::McError) => advice.cause("an access outside memory, or into a protected part of it"),
        Some(Kind::NvmapFreed | Kind::NvmapHandle | Kind::NvmapLimit) => {
            advice.cause("a program closed or reused memory that was still in use");
        }
        Some(Kind::OomKill) => {
            advice.cause("processes and GPU buffers together need more memory than there is");
        }
        // The line says it all.
        _ => {}
    }
}
