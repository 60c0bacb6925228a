//! The lines drivers print, by shape: the name of each here, its role in a fault, and its meaning.
//!
//! Sources: nvgpu of L4T r36.4.3 (and the newer driver for the second form of the SM state), the open desktop
//! driver, nouveau, and Linux's drivers of the SMMU and of Tegra's memory controller. Spelling and blanks are
//! the drivers'.

use std::sync::OnceLock;

use serde::Serialize;

use crate::kernel_log::shape::{Reading, Shape};
use crate::known_lines::pieces::squeezed;

/// Role of a line in the story of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It reports the error.
    Cause,
    /// It adds to a cause.
    Detail,
    /// The driver notifies the owner of a channel.
    Notice,
    /// The driver cleans up.
    Recovery,
    /// State of channels and engines, printed after the clean-up.
    Dump,
    /// Debug output that has to be switched on.
    Trace,
    /// Another unit of the chip reports an error; it stands by itself.
    Platform,
    /// Known to be harmless.
    Harmless,
    /// No fault by itself: the cause or the consequence of one, where one is near.
    Context,
}

/// Origin of a line, by its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Tegra's GPU driver.
    Nvgpu,
    /// Its dump of channels and engines (`__ga10b__`).
    Dump,
    /// The desktop driver's Xid lines.
    Xid,
    /// The kernel's reports about a PCIe port or a GPU behind one.
    Pcie,
    /// Another kernel driver, or a program that reads the SMs itself.
    Other,
}

macro_rules! lines {
    ($( $source:ident { $( $kind:ident, $role:ident, $meaning:literal: $($pattern:literal),+; )+ } )+) => {
        /// Kind of a line.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $( $( #[doc = $meaning] $kind, )+ )+
        }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$( $( Self::$kind, )+ )+];

            /// Returns the origin of such lines.
            #[must_use]
            pub const fn source(self) -> Source {
                match self { $( $( Self::$kind => Source::$source, )+ )+ }
            }

            /// Its part in a fault.
            #[must_use]
            pub const fn role(self) -> Role {
                match self { $( $( Self::$kind => Role::$role, )+ )+ }
            }

            /// Returns the meaning, in plain words.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $( $( Self::$kind => $meaning, )+ )+ }
            }

            /// The patterns of its message, whichever release of the driver printed it.
            #[must_use]
            pub const fn patterns(self) -> &'static [&'static str] {
                match self { $( $( Self::$kind => &[$($pattern),+], )+ )+ }
            }
        }
    };
}

lines! {
    Nvgpu {
        SmMachineCheck, Cause, "an SM reported an error of its own (the name says nothing about broken hardware)":
            "sm machine check err. gpc_id({gpc:d}), tpc_id({tpc:d}), offset({offset:d})";
        SmErrorState, Cause, "the SM's exception registers":
            "sm err state gpc_id({gpc:d}), tpc_id({tpc:d}), offset({offset:d}), sm_id({sm_id:d}), hww_global_esr {global_esr:n},hww_warp_esr {warp_esr:n}, hww_warp_esr_pc {pc:x}",
            "sm err state gpc_id({gpc:d}), tpc_id({tpc:d}), offset({offset:d}), sm_id({sm_id:d}), hww_global_esr ({global_esr:n}), hww_warp_esr ({warp_esr:n}), hww_warp_esr_pc ({pc:n}), hww_cga_esr ({cga_esr:n})";
        SmRegisters, Detail, "the same registers once more, in hexadecimal":
            "sm hww global {global_esr:x} warp {warp_esr:x}", "sm hww global {global_esr:h} warp {warp_esr:h}";
        SmRecordLost, Detail, "the driver could not store the SM's record, so a live query finds nothing":
            "error populating tsg sm_error_state", "no valid tsg", "Invalid number of SMs";
        SmRecordLive, Cause, "the SM's record, read from the driver":
            "sm record sm_id({sm_id:d}), global_esr {global_esr:x}, warp_esr {warp_esr:x}, pc {pc:x}, address {address:x}";
        SoftwareFault, Cause, "the software ga10b names the instruction and the threads that failed":
            "warp error {error:x} at pc {pc:x}, block [{block:t}], warp {warp:d}, lanes {lanes:x}: {instruction:t}";
        Deadline, Cause, "a program waited for its work and gave up": "work did not end before its deadline";
        GrExceptionNotice, Notice, "the driver is about to tell the channel's owner":
            "set gr exception notifier";
        Notifier, Notice, "the channel's owner was told":
            "error notifier set to {code:d} for ch {channel:d} owned by {comm:t}", "error notifier set to {code:d} for ch {channel:d}";
        GpcPending, Trace, "a GPC has an exception waiting": "GPC{gpc:d} exception pending";
        TpcPending, Trace, "a TPC has an exception waiting":
            "GPC{gpc:d}: TPC{tpc:d} exception pending", "GPC{gpc:d} TPC{tpc:d}: pending exception {bits:x}";
        SmPending, Trace, "an SM has an exception waiting": "GPC{gpc:d} TPC{tpc:d}: SM{sm:d} exception pending";
        TrapContext, Trace, "the method the front end was at":
            "channel {channel:d}: addr {address:x}, data {data_low:x} {data_high:x},ctx {context:x}, offset {offset:x}, subchannel {subchannel:x}, class {class:x}";
        LockDownTimeout, Detail, "the SM could not be stopped for the debugger":
            "GPC{gpc:d} TPC{tpc:d}: timed out while trying to lock down SM{sm:d}",
            "GPC{gpc:d} TPC{tpc:d}: mmu fault pending, SM{sm:d} will never lock down!";
        LockDownState, Detail, "the state of an SM that could not be stopped":
            "STATUS0={status:x} CONTROL0={control:x} VALID_MASK={valid:x} PAUSE_MASK={paused:x} TRAP_MASK={trapped:x}";
        SkedException, Cause, "the scheduler refused a launch descriptor (QMD)": "sked exception: esr {esr:x}";
        FeException, Cause, "the front end refused a method": "fe exception: esr {esr:x}, info {info:x}";
        MmeException, Cause, "the macro engine stopped": "mme exception: esr {esr:x} info:{info:x}";
        MmeFe1Exception, Cause, "the macro engine of the second front end stopped":
            "mme_fe1 exception: esr {esr:x}, info {info:x},info_mthd {method:x}, info_mthd2 {method2:x}";
        MemfmtException, Cause, "inline data does not fit its announced length": "memfmt exception: esr {esr:h}";
        PdException, Cause, "the primitive distributor stopped (graphics)": "pd exception: esr {esr:x}";
        SccException, Cause, "the shared constant cache stopped (graphics)": "scc exception: esr {esr:x}";
        DsException, Cause, "the data stage stopped (graphics)": "ds exception: esr: {esr:x}";
        SsyncException, Cause, "the slave-sync unit stopped": "ssync exception: esr {esr:x}", "ssync exception";
        MpcException, Cause, "a warp could not be launched (MPC)": "mpc hww esr {esr:x}";
        PropException, Cause, "the pixel output unit stopped (graphics)": "prop hww: ({bits:t}";
        GpcUnitException, Cause, "a graphics unit of a GPC stopped":
            "gpc:{gpc:d} zcull interrupt intr: {bits:x}", "gpc:{gpc:d} setup interrupt intr: {bits:x}",
            "gpc:{gpc:d} pes:{pes:d} interrupt intr: {bits:x}",
            "gpc({gpc:d}) rop({rop:d}) crop_hww_esr({bits:x})", "gpc({gpc:d}) rop({rop:d}) zrop_hww_esr({bits:x})",
            "rrh exception status({bits:x})", "gppcs gpc:{gpc:d} ecc interrupt intr: {bits:x}";
        IllegalMethod, Cause, "a method that the class does not have":
            "invalid method class {class:x}, offset {offset:x} address {address:x}", "illegal method";
        IllegalNotify, Cause, "an illegal notify request": "illegal notify pending";
        IllegalClass, Cause, "a class that this GPU does not have": "invalid class {class:x}, offset {offset:x}";
        ClassError, Cause, "a method with a value that its class does not take":
            "class error {class:x}, offset {offset:x},sub channel {subchannel:x} mme generated {mme:d}, mme pc {mme_pc:x}data high {data_high:d} priv status {privileged:d} unhandled intr {code:x} for channel {channel:d}";
        TrappedData, Detail, "the value of the refused method":
            "trapped data low {data_low:x}", "trapped data high {data_high:x}";
        FirmwareMethod, Cause, "a method asked the context firmware for something it does not allow":
            "firmware method error: mailxbox6 {mailbox:x}, trapped_addr_reg {address:x} set_falcon_method {method:x}, class {class:x} non-whitelist reg: {register:x}",
            "firmware method {class:x}, offset {offset:x} for channel {channel:d}";
        FirmwareError, Cause, "the context firmware reported an error":
            "ctxsw intr0 set by ucode, error_code: {code:x},", "ctxsw intr0 set by ucode, ctxsw checksum mismatch";
        FaultInSwitch, Cause, "a context buffer faulted while contexts were switched":
            "fecs fault during ctxsw for channel {channel:d}";
        FirmwareWatchdog, Cause, "the context firmware hangs; the driver does not recover from this by itself":
            "fecs watchdog triggered for channel {channel:d}, cannot ctxsw anymore !!";
        FirmwareMailbox, Detail, "a mailbox of the context firmware":
            "gr_fecs_ctxsw_mailbox_r({index:d}): {value:x}", "gr_gpc{gpc:d}_gpccs_ctxsw_mailbox_r({index:d}): {value:x}";
        GrInterrupt, Detail, "an interrupt of the graphics engine that belongs to no known channel":
            "pgraph intr: {bits:x}, channel_id: INVALID", "pgraph intr: {bits:x}, channel_id: {channel:d} not bound to tsg",
            "unhandled gr intr {bits:x} for chid {channel:d}";
        DroppedMethod, Detail, "a method was dropped": "dropping method({method:x}) on subchannel({subchannel:d})";
        PageFaultError, Cause, "the MMU reported a fault":
            "page fault error: err_type = {error:x}, fault_status = {status:x}";
        MmuFault, Cause, "the MMU's fault: address, type, access":
            "[MMU FAULT] mmu engine id:  {engine:d}, ch id:  {channel:d}, fault addr: {address:x}, fault addr aperture: {aperture:d}, fault type: {fault:t}, access type: {access:t}, ";
        MmuClient, Detail, "the unit that made the access":
            "[MMU FAULT] protected mode: {protected:d}, client type: {client_type:t}, client id:  {client:t}, gpc id if client type is gpc: {gpc:d}, ";
        MmuEngines, Detail, "the engines behind the access":
            "[MMU FAULT] faulted act eng id if any: {engine:x}, faulted veid if any: {veid:x}, faulted pbdma id if any: {pbdma:x}, ";
        MmuInstance, Detail, "the context behind the access":
            "[MMU FAULT] inst ptr: {instance:x}, inst ptr aperture: {aperture:d}, replayable fault: {replayable:d}, replayable fault en:  {replay_enabled:d} timestamp hi:lo {time_high:x}:{time_low:x}, ";
        WalkFailed, Detail, "the driver's own walk of the page tables found no entry for the address": "Failed!";
        MmuRecovery, Recovery, "the driver stops what caused the MMU fault":
            "mmu fault id={id:d} id_type={id_type:d} act_eng_bitmask={engines:h}";
        ChannelMmuFault, Recovery, "the channel the MMU fault belongs to": "channel {channel:d} generated a mmu fault";
        TsgMmuFault, Recovery, "the channel group the MMU fault belongs to": "TSG {tsg:d} generated a mmu fault";
        DroppedFault, Cause, "the MMU had to drop faults, so the first one may be missing here":
            "dropped mmu fault ({status:x})";
        HubMmuError, Cause, "the MMU's fault buffer is in trouble":
            "GPU_HUBMMU_PAGE_FAULT_ERROR. sub-err: {name:t}. fault_status({status:x})",
            "non replayable overflow: buffer full:{full:t}", "non replayable getptr corrupted set",
            "replayable overflow: buffer full:{full:t}", "replayable getptr corrupted set";
        OtherMmuFault, Cause, "an MMU fault outside any channel": "BAR2 MMU FAULT", "PHYSICAL MMU FAULT";
        NoGroup, Detail, "the channel belongs to no group, or the number names none":
            "chid: {channel:d} is referenceable but not bound to tsg", "invalid id {id:d}", "invalid id type {id_type:d}";
        OldMmuFault, Cause, "the MMU's fault, as drivers before Volta print it":
            "mmu fault on engine {engine:d}, engine subid {subid:d} ({client_type:t}), client {client_id:d} ({client:t}), addr {high:x}:{low:x}, type {fault_id:d} ({fault:t}), info {info:x},inst_ptr {instance:x}",
            "fake mmu fault on engine {engine:d}, engine subid {subid:d} ({client_type:t}), client {client_id:d} ({client:t}), addr {high:x}:{low:x}, type {fault_id:d} ({fault:t}), info {info:x},inst_ptr {instance:x}",
            "mmu fault on engine {engine:d}, engine subid {subid:d} ({client_type:t}), client {client_id:d} ({client:t}), addr {address:x}, type {fault_id:d} ({fault:t}), access_type {access_id:x},inst_ptr {instance:x}",
            "fake mmu fault on engine {engine:d}, engine subid {subid:d} ({client_type:t}), client {client_id:d} ({client:t}), addr {address:x}, type {fault_id:d} ({fault:t}), access_type {access_id:x},inst_ptr {instance:x}";
        PbdmaError, Cause, "the pushbuffer unit refused what it was given": "PBDMA intr {name:t} Error";
        PbdmaState, Cause, "what the pushbuffer unit was working on":
            "pbdma_intr_0({pbdma:d}):{intr:x} PBH: {header:h} SHADOW: {shadow:h} gp shadow0: {entry_low:h} gp shadow1: {entry_high:h}M0: {method0:h} {method1:h} {method2:h} {method3:h} ";
        PbdmaInterrupt, Cause, "an interrupt of the pushbuffer unit": "pbdma_intr_0({pbdma:d})= {intr:x} ";
        PbdmaInterrupt1, Cause, "the pushbuffer unit's context is not valid": "pbdma_intr_1({pbdma:d})= {intr:x} ";
        HostCopyError, Cause, "the host's built-in copy logic refused a method":
            "hce err: pbdma_intr_1({pbdma:d}):{intr:x}";
        AcquireTimeout, Cause, "a semaphore did not reach its value in time": "semaphore acquire timeout!";
        BadRunlist, Cause, "the list of channels to run is not valid":
            "runlist bad tsg error: {name:t}", "runlist bad tsg error code not supported",
            "unhandled runlist({runlist:d}) intr_0: {bits:x} handled: {handled:x}", "runlist {runlist:d} update timeout",
            "runlist_id({runlist:d}), pbdma_idx({pbdma:d}): invalid PBDMA", "pbdma intr failed id: {id:d}";
        PreemptTimeout, Recovery, "a channel group could not be stopped in time":
            "preempt timed out for tsgid: {tsg:d}, ctxsw timeout will trigger recovery if needed",
            "preempt timeout pbdma: {pbdma:d} pbdma_stat: {status:d} tsgid: {tsg:d}",
            "preempt timeout eng: {engine:d} ctx_stat: {status:d} tsgid: {tsg:d}", "preempt pbdma retries: {retries:d}",
            "preempt eng retries: {retries:d}";
        SwitchTimeoutHost, Cause, "a context switch took too long": "Host pfifo ctxsw timeout error";
        SwitchTimeout, Cause, "a context switch timed out: the engine and the group that it waited for":
            "ctxsw timeout error: active engine id ={engine:d}, tsg={tsg:d}, info: {info:t} ms={ms:d}",
            "ctxsw timeout for rleng: {engine:d} but dev is invalid";
        Watchdog, Cause, "a job ran into the channel's watchdog": "Job on channel {channel:d} timed out";
        AbortRunlists, Recovery, "the driver stops all groups of these runlists":
            "abort active tsgs of runlists set in runlists_mask: {mask:x}";
        RecoveryFailed, Recovery, "recovery failed; the GPU may be unusable until the next boot":
            "TSG preemption on PBDMA failed; PBDMA seems stuck; cannot recover stuck PBDMA.",
            "runlist id {runlist:d} is not cleaned up", "failed to disable ctxsw", "failed to enable ctxsw",
            "Invalid error notifier {code:d}", "pbdma status not valid", "failed to reset gr engine",
            "failed to halt gr pipe", "cannot idle engine: {engine:d} engine_status: {status:x}",
            "The CE engine {engine:d} is not idlewhile reset", "fail to disable power mgmt";
        Quiesce, Recovery, "the driver gave up: the GPU stays unusable until it is loaded again, or until the next boot":
            "{function:t}:{line:d} SW quiesce requested", "Entering SW Quiesce!!", "SW quiesce thread running";
        PriTimeout, Cause, "a register access timed out": "PRI timeout: ADR {address:x} {access:t} DATA {data:x}";
        PriCode, Detail, "the code of a register error": "FECS_ERRCODE {code:x}", "CODE {code:x}";
        PriRing, Cause, "the register ring reported errors": "ringmaster intr status0: {status0:x}, status1: {status1:x}";
        PriWrite, Detail, "the register write that failed":
            "{unit:t} write error: ADR {address:x} WRDAT {data:x} master {master:x}";
        PriInfo, Detail, "more about the register error":
            "INFO {info:x}: (subid {subid:x} priv_level {level:d} local_ordering {ordering:d})", "[Error Type]: {error:t}",
            "[Extra Info]: {extra:t}";
        BusError, Cause, "the GPU's bus interface reported an error":
            "host pbus squash error", "host pbus fecs error", "host pbus timeout error", "Unhandled NV_PBUS_INTR_0: {bits:x}";
        CopyError, Cause, "the copy engine refused a transfer":
            "ce launch error interrupt with errcode:{code:x}", "ce launch error interrupt", "ce: inst {engine:d}: invalid config",
            "ce: inst {engine:d}: mthd buffer fault", "ce: inst {engine:d}, fault buffer crc mismatch",
            "ce: inst {engine:d}, fault buffer magic check fail";
        EccError, Cause, "a memory of the GPU reported a bit error":
            "rstg ecc error uncorrected", "tstg ecc error uncorrected", "dstg ecc error uncorrected", "Double bit error detected in GPU L2!",
            "uncorrected ecc {part:t} error. ecc_addr({address:x})",
            "Uncorrected error (DBE) detected in SM {unit:t}! err_mask [{mask:h}] is_overf [{overflow:d}]",
            "sm_l1_tag_ecc_uncorrected{place:t}", "sm_cbu_ecc_uncorrected{place:t}",
            "sm_lrf_ecc_uncorrected{place:t}", "sm_l1_data_ecc_uncorrected{place:t}", "sm_icache_l0_data_ecc_uncorrected{place:t}",
            "sm_icache_l1_data_ecc_uncorrected{place:t}", "sm_icache_l0_predecode_ecc_uncorrected{place:t}",
            "sm_l1_tag_miss_fifo_ecc_uncorrected{place:t}", "sm_l1_tag_s2r_pixprf_ecc_uncorrected{place:t}",
            "sm_rams_urf_ecc_uncorrected{place:t}";
        CompressionUnsafe, Cause, "the compression cache is set up wrongly": "CBC marked unsafe by MMU, check cbc config";
        RegisterRefused, Detail, "a debugger asked for a register that it may not read": "invalid regop offset: {register:x}";
        MapTrace, Trace, "a mapping was made or undone":
            "vm={vm:t} MAP GPU virt {va:x} +{size:x} phys {phys:x} phys offset: {offset:x} ; pgsz: {page_kb:d}kb perm={perm:t} | kind={kind:x} APT={aperture:t} {attributes:t}",
            "vm={vm:t} UNMAP GPU virt {va:x} +{size:x} phys {phys:x} phys offset: {offset:x} ; pgsz: {page_kb:d}kb perm={perm:t} | kind={kind:x} APT={aperture:t} {attributes:t}";
        PdeTrace, Trace, "a page-directory entry was written":
            "PDE: i={index:d} size={size:d} offs={offset:d} pgsz: {pages:t} | GPU {va:x} phys {phys:x} [{words:t}]";
        PteTrace, Trace, "a page-table entry was written":
            "vm={vm:t} PTE: i={index:d} size={size:d} | GPU {va:x} phys {phys:x} pgsz: {page_kb:d}kb perm={perm:t} kind={kind:x} APT={aperture:t} {attributes:t} ctag={tag:x} [{words:t}]";
        AllocationFailed, Cause, "the driver could not allocate memory for itself":
            "DMA alloc FAILED: [{pool:t}] size={size:d} aligned={aligned:d} flags:{flags:t}", "Failed to allocate comptags";
        BringUpFailed, Cause, "the driver could not bring the GPU up": "Failed initialization for: {step:t}";
        InjectionCallback, Harmless, "printed at each boot where the safety reporting is not installed":
            "Err inj callback registration failed: {code:d}";
        FirmwareQueue, Harmless, "printed while firmware starts":
            "FBQ last received queue element not processed yet queue_pos {position:d}";
    }
    Dump {
        DumpTitle, Dump, "a dump begins": "Channel Status - chip {chip:t}", "PBDMA Status - chip {chip:t}", "--------------------------";
        DumpChannel, Dump, "an open channel":
            "{channel:d}-{chip:t}, TSG: {tsg:d}, pid {pid:d}, thread name {comm:t}, refs: {refs:d}, deterministic: {deterministic:t}, domain name: {domain:t}";
        DumpChannelStatus, Dump, "what a channel was doing": "channel status: not in use {state:t}", "channel status: in use {state:t}";
        DumpRamfc, Dump, "a channel's saved host state; GET short of PUT means words are left":
            "RAMFC: TOP: {top:h} PUT: {put:h} GET: {get:h} FETCH: {fetch:h} HEADER: {header:h} COUNT: {count:h} SEMAPHORE: addr {semaphore:h} payload {payload:h} execute {execute:h}";
        DumpSemaphore, Dump, "a semaphore of the kernel":
            "SEMA STATE: value: {value:x} next_val: {next:x} addr: {address:x}";
        DumpPbdma, Dump, "a pushbuffer unit": "pbdma {pbdma:d}:";
        DumpPbdmaId, Dump, "whom a pushbuffer unit serves":
            "id: {id:d} - {id_type:t} next_id: - {next_id:d} {next_type:t} | status: {status:t}";
        DumpPbdmaPointers, Dump, "where a pushbuffer unit stands": "PBDMA_PUT {put:h} PBDMA_GET {get:h}";
        DumpRing, Dump, "where a ring stands": "GP_PUT {put:h} GP_GET {get:h} FETCH {fetch:h} HEADER {header:h}";
        DumpHeader, Dump, "the ring entry in work": "HDR {header:h} SHADOW0 {entry_low:h} SHADOW1 {entry_high:h}";
        DumpEngine, Dump, "an engine": "{chip:t} eng {engine:d}:";
        DumpEngineId, Dump, "whom an engine serves":
            "id: {id:d} ({id_type:t}), next_id: {next_id:d} ({next_type:t}), ctx status: {status:t}";
        DumpEngineFlag, Dump, "a flag of an engine": "busy", "faulted", "ctx_reload";
        DumpRegister, Dump, "a register": "NV_PGRAPH_PRI_{register:t}: {value:x}";
    }
    Xid {
        XidSmWarp, Cause, "a warp failed on this SM":
            "Graphics SM Warp Exception on (GPC {gpc:d}, TPC {tpc:d}, SM {sm:d}): {error:t}",
            "Graphics SM Warp Exception on (GPC {gpc:d}, TPC {tpc:d}): {error:t}";
        XidSmGlobal, Cause, "an SM-wide condition":
            "Graphics SM Global Exception on (GPC {gpc:d}, TPC {tpc:d}, SM {sm:d}): {error:t}",
            "Graphics SM Global Exception on (GPC {gpc:d}, TPC {tpc:d}): {error:t}";
        XidEsr, Cause, "the SM's exception registers":
            "Graphics Exception: ESR {address:x}={warp_esr:x} {global_address:x}={global_esr:x} {warp_mask_address:x}={warp_mask:x} {global_mask_address:x}={global_mask:x}";
        XidUnitEsr, Cause, "an exception register of the graphics engine": "Graphics Exception: ESR {address:x}={esr:x}";
        XidSked, Cause, "the scheduler refused a launch descriptor (QMD)":
            "Graphics Exception: SKEDCHECK{check:t} failed", "SKEDCHECK{check:t} failed";
        XidClassMismatch, Cause, "a class sent to the wrong subchannel":
            "Graphics Exception: Class {class:x} Subchannel {subchannel:x} Mismatch", "Class {class:x} Subchannel {subchannel:x} Mismatch";
        XidMethod, Cause, "the method the engine stopped at":
            "Graphics Exception: ChID {channel:h}, Class {class:h}, Offset {offset:h}, Data {data:h}",
            "Graphics Exception: channel {channel:x}, Class {class:h}, Offset {offset:h}, Data {data:h}";
        XidMmuFault, Cause, "the MMU's fault: address, type, access":
            "Ch {channel:h}, intr {intr:h}. MMU Fault: ENGINE {engine:t} {client:t} faulted @ {high:x}_{low:h}. Fault is of type {fault:t} ACCESS_TYPE_{access:t}",
            "channel {channel:x}, intr {intr:h}. MMU Fault: ENGINE {engine:t} {client:t} faulted @ {high:x}_{low:h}. Fault is of type {fault:t} ACCESS_TYPE_{access:t}";
        XidPbdma, Cause, "the pushbuffer unit refused what it was given": "Channel ID {channel:h} intr {intr:h}", "channel {channel:x}, intr {intr:h}";
        XidSwitchTimeout, Cause, "a context switch took too long":
            "Ch {channel:h}, errorString {error:t}, Info {info:x}", "channel {channel:x}, errorString {error:t}, Info {info:x}";
        XidChannel, Recovery, "the channel was stopped; the cause is an earlier line":
            "Ch {channel:h} caused by previous Xid {previous:d}", "Ch {channel:h}", "channel {channel:x}",
            "channel {channel:x} caused by previous Xid {previous:d}", "{text:t}, Ch {channel:h}";
        XidOther, Cause, "an error the driver describes in its own words": "{text:t}";
    }
    Pcie {
        PcieCorrected, Harmless, "the PCIe link repaired an error by itself":
            "PCIe Bus Error: severity=Corrected, {rest:t}", "PCIe Bus Error: severity=Correctable, {rest:t}",
            "Corrected error received: {from:t}", "Multiple Corrected error received: {from:t}",
            "Correctable error message received from {from:t}", "Multiple Correctable error message received from {from:t}";
        PcieError, Platform, "PCIe reports an error that the link could not repair":
            "PCIe Bus Error: severity={severity:t}, type={layer:t}, ({agent:t})",
            "{severity:t} error received: {from:t}", "{severity:t} error message received from {from:t}";
        PcieLinkDown, Platform, "the PCIe link to the device is down":
            "Slot({slot:t}): Link Down", "Slot({slot:t}): Card not present", "containment event, status:{status:x} {rest:t}",
            "can't recover (no error_detected callback)", "device recovery failed",
            "Unable to change power state from {from_state:t} to {to_state:t}, device inaccessible";
        IommuFault, Platform, "the IOMMU refused an access of the GPU": "AMD-Vi: Event logged [IO_PAGE_FAULT {rest:t}";
    }
    Other {
        SmmuFault, Platform, "the SMMU refused a device's access":
            "arm-smmu {unit:t}.iommu: Unhandled context fault: fsr={fsr:x}, iova={iova:x}, fsynr={fsynr:x}, cbfrsynra={stream:x}, cb={bank:d}",
            "arm-smmu {unit:t}.iommu: Unhandled context fault: iova={iova:x}, fsynr={fsynr:x}, cb={bank:d}, sid={stream:d}({name:t}), pgd={pgd:h}, pud={pud:h}, pmd={pmd:h}, pte={pte:h}";
        SmmuStatus, Detail, "the SMMU's fault status": "arm-smmu {unit:t}.iommu: FSR = {fsr:h} [{flags:t}], SID={stream:x}";
        SmmuSyndrome, Detail, "the SMMU's fault syndrome": "arm-smmu {unit:t}.iommu: FSYNR0 = {fsynr:h} [{flags:t}]";
        SmmuGlobal, Platform, "the SMMU saw an access of a device it does not know":
            "arm-smmu {unit:t}.iommu: Unexpected global fault, this could be serious",
            "arm-smmu {unit:t}.iommu: Blocked unknown Stream ID {stream:x}; {rest:t}",
            "arm-smmu {unit:t}.iommu: Blocked unknown Stream ID {stream:x}",
            "arm-smmu {unit:t}.iommu: GFSR {gfsr:x}, GFSYNR0 {rest:t}";
        MemoryController, Platform, "the memory controller refused an access":
            "tegra-mc {unit:t}.memory-controller: {client:t}: secure {access:t} @{address:x}: {status:t} ({error:t})",
            "tegra-mc {unit:t}.memory-controller: {client:t}: {access:t} @{address:x}: {status:t} ({error:t})";
        NvmapTag, Harmless, "a program allocates without naming its subsystem; printed once per program":
            "nvmap_alloc_handle: PID {pid:d}: {comm:t}: WARNING: All NvMap Allocations must have a tag {rest:t}";
        NvmapFreed, Platform, "a program used memory that it had freed":
            "nvmap: {function:t}() {comm:t}: {comm2:t} attempt to get a freed handle",
            "nvmap_{function:t}: {comm:t}: {comm2:t} attempt to get a freed handle";
        NvmapHandle, Platform, "a program named memory that does not exist":
            "nvmap: {function:t}() {comm:t}: invalid handle", "nvmap_{function:t}: {comm:t}: invalid handle";
        NvmapLimit, Platform, "a user has too many open buffers": "NvMap: FD limit is crossed for uid {uid:d}";
        NvmapRequest, Platform, "a request that nvmap does not know": "Unknown NVMAP_IOC = {request:x}";
        NvmapHeap, Harmless, "nvmap starts": "nvmap_heap_init: created heap block cache";
        NotifierRefused, Detail, "an error that has no number a program could read":
            "nvgpu_error_notifier_to_channel_notifier: invalid error_notifier requested {code:d}";
        HungTask, Context, "a task hangs in the kernel; after a failed recovery this is where channels are closed":
            "INFO: task {comm:t}:{pid:d} blocked for more than {seconds:d} seconds.";
        OomKill, Platform, "memory was used up: the kernel ended a process":
            "Out of memory: Kill process {pid:d} ({comm:t}) score {score:d} or sacrifice child",
            "Out of memory: Killed process {pid:d} ({comm:t}) {rest:t}", "Out of memory: Killed process {pid:d} ({comm:t})",
            "Memory cgroup out of memory: Killed process {pid:d} ({comm:t}) {rest:t}";
        OverCurrent, Platform, "the supply gave too much current or too low a voltage; clocks were lowered":
            "soctherm: OC ALARM {alarm:x}";
        HeatShutdown, Platform, "a sensor reached its critical temperature; the machine shuts down":
            "thermal thermal_zone{zone:d}: {sensor:t}: critical temperature reached, shutting down",
            "thermal thermal_zone{zone:d}: {sensor:t}: critical temperature reached",
            "thermal thermal_zone{zone:d}: critical temperature reached ({celsius:d} C), shutting down",
            "thermal thermal_zone{zone:d}: critical temperature reached({celsius:d} C),shutting down",
            "thermal thermal_zone{zone:d}: critical temperature reached, shutting down",
            "reboot: HARDWARE PROTECTION shutdown (Temperature too high)";
        SymbolVersion, Platform, "a module was built for another kernel or another release of its modules":
            "{module:t}: disagrees about version of symbol {symbol:t}", "{module:t}: version magic {magic:t}";
        NvSwitch, Platform, "an NVSwitch reports a fatal error": "SXid (PCI:{pci:t}): {number:d}, Fatal, {says:t}";
        GpuLost, Platform, "the GPU no longer answers on PCIe": "NVRM: GPU {pci:t}: GPU has fallen off the bus.";
        ModuleKey, Context, "the kernel refused a module that no known key signed": "Loading of module with unavailable key is rejected";
        KeyRejected, Platform, "the kernel refused the driver's module: no key that it knows signed it":
            "Failed to insert module '{module:t}': Key was rejected by service",
            "could not insert '{module:t}': Key was rejected by service",
            "{module:t}: Loading of module with unavailable key is rejected";
        FirmwareMissing, Platform, "a firmware file of the GPU is missing":
            "{device:t}: Direct firmware load for {file:t} failed with error {error:d}";
        ApiMismatch, Platform, "the driver's library and its kernel module are of different releases":
            "NVRM: API mismatch: {says:t}";
        PowerCable, Platform, "the GPU's power cables are not connected":
            "NVRM: GPU {pci:t}: GPU does not have the necessary power cables connected.";
        BarInvalid, Platform, "the system's firmware gave the GPU no valid PCI memory region":
            "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:";
        Refused, Platform, "the driver does not take the GPU":
            "NVRM: The NVIDIA GPU {pci:t} (PCI ID: {id:t})", "NVRM: The NVIDIA {name:t} GPU installed in this system is",
            "NVRM: The NVIDIA GPU {pci:t}";
        OtherDriver, Platform, "another driver, such as nouveau, holds the GPU":
            "NVRM: The NVIDIA probe routine was not called for {count:d} device(s).";
        InitFailed, Platform, "the driver could not start the GPU":
            "NVRM: GPU {pci:t}: RmInitAdapter failed! ({status:t})", "NVRM: RmInitAdapter failed! ({status:t})",
            "NVRM: GPU {pci:t}: rm_init_adapter failed, device minor number {minor:d}",
            "NVRM: rm_init_adapter failed for device bearing minor number {minor:d}";
        Nvrm, Context, "the desktop driver says": "NVRM: {says:t}";
        Host1xTimeout, Platform, "work of a video, vision or camera engine (host1x, not the GPU) did not end in time":
            "host1x {unit:t}: cdma_timeout_handler: timeout: {syncpoint:d} ({engine:t}), HW thresh {wanted:d}, done {value:d}",
            "host1x {unit:t}: cdma_handle_timeout: timeout: {syncpoint:d} ({engine:t}) clientid {client:d}, HW thresh {wanted:d}, done {value:d}",
            "host1x {unit:t}: {thread:t}: syncpoint id {syncpoint:d} ({engine:t}) stuck waiting {wanted:d}, timeout={timeout:d}";
        McError, Platform, "the memory controller refused an access": "mc-err: ({id:d}) {client:t}: {error:t}";
        McStatus, Detail, "its registers": "mc-err: status = {status:x}; addr = {address:x}", "mc-err: secure: {secure:t}, access-type: {access:t}";
        NouveauFault, Cause, "the MMU's fault (nouveau)":
            "nouveau {pci:t}: fifo: fault {access_id:h} [{access:t}] at {address:h} engine {engine_id:h} [{engine:t}] client {client_id:h} [{client:t}] reason {reason:h} [{fault:t}] on channel {channel:d} [{instance:h} {comm:t}[{pid:d}]]",
            "nouveau {pci:t}: fifo: fault {access_id:h} [{access:t}] at {address:h} engine {engine_id:h} [{engine:t}] client {client_id:h} [{client:t}] reason {reason:h} [{fault:t}] on channel {channel:d} [{instance:h} {comm:t}]",
            "nouveau {pci:t}: fifo: {access:t} fault at {address:h} engine {engine_id:h} [{engine:t}] client {client_id:h} [{client:t}] reason {reason:h} [{fault:t}] on channel {channel:d} [{instance:h} {comm:t}[{pid:d}]]",
            "nouveau {pci:t}: fifo: {access:t} fault at {address:h} engine {engine_id:h} [{engine:t}] client {client_id:h} [{client:t}] reason {reason:h} [{fault:t}] on channel {channel:d} [{instance:h} {comm:t}]";
        NouveauData, Cause, "a method with a value that its class does not take (nouveau)":
            "nouveau {pci:t}: gr: DATA_ERROR {code:h} [{error:t}]", "nouveau {pci:t}: gr: ILLEGAL_{error:t} ch {channel:d} [{instance:h} {comm:t}[{pid:d}]] {rest:t}";
        NouveauMethod, Notice, "the method and its channel (nouveau)":
            "nouveau {pci:t}: gr: {bits:h} [{names:t}] ch {channel:d} [{instance:h} {comm:t}[{pid:d}]] subc {subchannel:d} class {class:h} mthd {method:h} data {data:h}";
        NouveauTimeout, Cause, "work did not leave the engine in time (nouveau)": "nouveau {pci:t}: fifo: SCHED_ERROR {code:h} [{error:t}]";
        NouveauPbdma, Cause, "the pushbuffer unit refused what it was given (nouveau)":
            "nouveau {pci:t}: fifo: PBDMA{pbdma:d}: {bits:h} [{name:t}] ch {channel:d} [{instance:h} {comm:t}[{pid:d}]] {rest:t}";
        NouveauTrap, Cause, "an SM trapped (nouveau)":
            "nouveau {pci:t}: gr: GPC{gpc:d}/TPC{tpc:d}/MP trap: global {global_esr:h} [{global:t}] warp {warp_esr:h} [{error:t}]";
        NouveauChannel, Notice, "the channel that trapped (nouveau)":
            "nouveau {pci:t}: gr: TRAP ch {channel:d} [{instance:h} {comm:t}[{pid:d}]]";
        UserSmState, Cause, "an SM's registers as a user-space driver printed them":
            "SM {sm_id:d} fault: esr={global_esr:n} warp_esr={warp_esr:n} warp_pc={pc:n}";
    }
}

fn shapes() -> &'static [(Kind, Vec<Shape>)] {
    static SHAPES: OnceLock<Vec<(Kind, Vec<Shape>)>> = OnceLock::new();
    SHAPES.get_or_init(|| {
        Kind::ALL
            .iter()
            .map(|kind| (*kind, kind.patterns().iter().map(|p| Shape::new(p)).collect()))
            .collect()
    })
}

/// Reads a message by the shapes of its source: the first whole match, else the cut one that says most.
#[must_use]
pub fn read(source: Source, message: &str) -> Option<(Kind, Reading)> {
    let message = &*squeezed(message.trim_end());
    // A line without a frame needs more of its shape.
    let least = if matches!(source, Source::Other | Source::Pcie) { 24 } else { 8 };
    let mut best: Option<(Kind, Reading)> = None;
    for (kind, shapes) in shapes().iter().filter(|(kind, _)| kind.source() == source) {
        for reading in shapes.iter().filter_map(|shape| shape.read(message, least)) {
            // A text of its own takes every line, a cut one of a better shape included.
            if reading.missing.is_empty() && *kind != Kind::XidOther {
                return Some((*kind, reading)).filter(is_of_gpu);
            }
            if best.as_ref().is_none_or(|(_, b)| reading.fields.len() > b.fields.len()) {
                best = Some((*kind, reading));
            }
        }
    }
    // Xid lines have a shape that takes any text.
    let best = best.or_else(|| {
        let of_source = shapes().iter().filter(|(kind, _)| kind.source() == source && source != Source::Xid);
        let readings = of_source
            .flat_map(|(kind, shapes)| shapes.iter().filter_map(|s| Some((*kind, s.read_start(message)?))));
        readings.max_by_key(|(_, reading)| reading.covered)
    });
    best.filter(is_of_gpu)
}

/// Whether lines that other drivers print as well name a GPU's.
fn is_of_gpu((kind, reading): &(Kind, Reading)) -> bool {
    let contains = |field, words: &[&str]| {
        reading.fields.text(field).is_some_and(|text| words.iter().any(|word| text.contains(word)))
    };
    match kind {
        Kind::SymbolVersion | Kind::KeyRejected => {
            contains("module", &["nvgpu", "nvmap", "nvidia", "host1x"])
        }
        Kind::FirmwareMissing => {
            contains("file", &["nvidia/", "gpmu_", "fecs", "gpccs", "acr"]) && !contains("file", &["xusb"])
        }
        _ => true,
    }
}
