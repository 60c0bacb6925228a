//! Recovery from an exception of the GPU: the driver logs, notifies the program, and kills the group.

use crate::driver::channel::Channel;
use crate::driver::late_faults::GpcFault;
use crate::driver::log::Site;
use crate::driver::machine::Machine;
use crate::driver::tsg::{SmRecord, Tsg};
use crate::gpu::chip::SmPlace;
use crate::gpu::engine::SWITCH_TIMEOUT;
use crate::gpu::exception::{Exception, PbdmaRegisters};
use crate::gpu::sm;
use crate::gpu::sm::launch::{Access, MemoryFault};
use crate::what_if::WhatIf;
use nv_hw::fault::{
    access_type, fault_type, fe_esr, global_esr, gpc_client, hub_client, hww_esr, pbdma_intr_0, pbdma_intr_1,
};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// Delay of [`WhatIf::LATE_UNSERVICEABLE`]: the driver prints to a serial console meanwhile.
const LATE_UNSERVICEABLE: Duration = Duration::from_millis(20);

const SET_NOTIFIER: Site = ("nvgpu_set_err_notifier_locked", 143);
const GR_NOTIFIER: Site = ("gr_intr_handle_exception_interrupts", 759);

/// Offset of the registers of an SM's TPC from those of the first.
fn register_offset(place: SmPlace) -> u32 {
    place.gpc * hww_esr::GPC_STRIDE + place.tpc * hww_esr::TPC_STRIDE
}

/// Handles an exception of `channel`: afterwards its whole group is dead.
pub(crate) fn recover(
    machine: &Machine,
    channel: &Arc<Channel>,
    exception: &Exception,
    registers: Option<PbdmaRegisters>,
) {
    let (tsg, veid, runqueue) = {
        let state = channel.state();
        (state.tsg.clone(), state.veid, state.runqueue)
    };
    let tsg_id = tsg.as_ref().map_or(u32::MAX, |t| t.id());
    let log = Lines { machine };
    explain(machine, channel, exception);
    let what_if = &machine.config.what_if;
    let code = match exception {
        Exception::Pbdma { intr_0, intr_1, registers } => {
            log.pbdma(*intr_0, *intr_1, registers, runqueue);
            nvgpu_sys::NVGPU_CHANNEL_PBDMA_ERROR
        }
        Exception::HubFault { client, fault } => {
            let engine = client.engine(veid, runqueue);
            log.mmu_fault(engine, channel.id(), fault, "hub", text(hub_client::TEXTS, client.number()), 0);
            log.mmu_recovery(tsg_id, engine, fault);
            nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
        }
        Exception::Sm { fault, several } => sm_exception(machine, channel, (fault, *several)),
        other => log.graphics(other, tsg_id),
    };
    let channels = tsg.as_ref().map_or_else(|| vec![Arc::clone(channel)], |t| machine.channels.of_group(t));
    if code != 0 {
        log.notify(&channels, code);
    }
    log.method(exception);
    if what_if.has(WhatIf::LATE_UNSERVICEABLE) {
        machine.clock.spend(LATE_UNSERVICEABLE);
    }
    // The driver dumps before it gives the channels up, and after a fault of the MMU then (`nvgpu_rc_fifo_recover`
    // in common/rc/rc.c, `gv11b_fifo_recover` in hal/rc/rc_gv11b.c, r36.4.3).
    let dumps_first = code != nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT;
    let dump = || log.dump(channel, registers.unwrap_or_default());
    if dumps_first {
        dump();
    }
    for channel in &channels {
        channel.instance.kill();
        let syncpoint = channel.instance.bindings().syncpoint;
        if let Some((id, _)) = syncpoint {
            machine.syncpoints.set_safe(id);
        }
    }
    if let Some(tsg) = &tsg {
        stop_engine(machine, tsg);
    }
    if !dumps_first {
        dump();
    }
}

/// Prints and records an SM's error, with the MMU's fault that caused it if there is one; the notifier code.
fn sm_exception(machine: &Machine, channel: &Channel, (fault, several): (&sm::Fault, bool)) -> u32 {
    let (tsg, veid) = {
        let state = channel.state();
        (state.tsg.clone(), state.veid)
    };
    let tsg_id = tsg.as_ref().map_or(u32::MAX, |t| t.id());
    let (log, what_if) = (Lines { machine }, &machine.config.what_if);
    tracing::error!(%fault, "a kernel failed");
    let number = machine.violations.record_fault(fault.to_string(), fault.found, fault.place.clone());
    machine.gpu.units.stops.add(channel.id(), number, fault);
    if machine.config.verbose {
        let _ = writeln!(io::stderr(), "ga10b: {fault}");
    }
    let record = SmRecord {
        global_esr: u32::from(several) << global_esr::MULTIPLE_WARP_ERRORS,
        warp_esr: hww_esr::ERROR.with(fault.code) | hww_esr::WARP_ID.with(fault.warp),
        pc: fault.pc,
    };
    let place = SmPlace::of(fault.sm);
    let mmu = fault.mmu.map(|fault| GpcFault { fault, place, channel: channel.id(), tsg: tsg_id, veid });
    let mmu = match mmu {
        Some(mmu) if what_if.has(WhatIf::SM_FIRST) => {
            machine.late_faults.add(mmu);
            None
        }
        now => now,
    };
    if let Some(mmu) = &mmu {
        log.gpc_fault(mmu);
    }
    // The engine's reset, which ends the recovery from the MMU's fault, takes the SM's state.
    if mmu.is_none() || !what_if.has(WhatIf::MMU_FIRST) {
        log.sm_error(fault, &record, place);
        if let Some(tsg) = &tsg
            && let Some(slot) = tsg.state().sm_errors.get_mut(fault.sm as usize)
        {
            *slot = record;
        }
    }
    if let Some(mmu) = &mmu {
        log.mmu_recovery(tsg_id, 64 + veid, &mmu.fault);
        nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
    } else {
        log.error(GR_NOTIFIER, "set gr exception notifier");
        nvgpu_sys::NVGPU_CHANNEL_GR_EXCEPTION
    }
}

/// Handles the MMU's faults whose SM exceptions came first. Their groups are dead, and their notifiers hold that
/// error: the driver writes a second one nowhere (`nvgpu_set_err_notifier_if_empty`, hal/init/hal_ga10b.c).
pub(crate) fn handle_late_faults(machine: &Machine) {
    let log = Lines { machine };
    for fault in machine.late_faults.take_due() {
        log.gpc_fault(&fault);
        log.mmu_recovery(fault.tsg, 64 + fault.veid, &fault.fault);
    }
}

/// Logs a fact that the driver cannot know: that the faulting address was taken away from work that ran.
fn explain(machine: &Machine, channel: &Channel, exception: &Exception) {
    let fault = match exception {
        Exception::HubFault { fault, .. } => Some(fault),
        Exception::Sm { fault, .. } => fault.mmu.as_ref(),
        _ => None,
    };
    let space = channel.state().address_space.clone();
    let Some((va, since)) =
        fault.zip(space).and_then(|(f, space)| Some((f.va, space.withdrawn_since(f.va)?)))
    else {
        return;
    };
    let ago = machine.clock.uptime().saturating_sub(since);
    let text = format!(
        "the program unmapped {va:#x} {ago:.1?} ago, while work ran on the GPU that uses it: it stopped waiting for the work, or \
         did not wait. If it gave up, let it wait longer: kernels take far longer here than on a GPU"
    );
    let _ = writeln!(io::stderr(), "ga10b: {text}");
    machine.violations.record_fault(text, false, None);
}

/// The engine is reset: work that still runs for closed channels of the group ends as well.
fn stop_engine(machine: &Machine, tsg: &Tsg) {
    for entry in machine.gpu.runlist().iter() {
        if entry.instance.group().is_some_and(|group| Arc::ptr_eq(&group, &tsg.entry)) {
            entry.instance.kill();
        }
    }
}

/// A context switch away from the group of `channel` did not happen within the runlist's time-out. The time
/// adds up in each channel of the group, and is never set back: the driver cannot see progress of a user-mode
/// channel.
pub(crate) fn switch_timeout(machine: &Machine, channel: &Arc<Channel>) {
    let Some(tsg) = channel.state().tsg.clone() else { return };
    let log = Lines { machine };
    log.error(("ga10b_fifo_ctxsw_timeout_isr", 277), "Host pfifo ctxsw timeout error");
    let mut over = None;
    for channel in machine.channels.of_group(&tsg) {
        let mut state = channel.state();
        state.switching_ms = state.switching_ms.saturating_add(SWITCH_TIMEOUT.as_millis() as u32);
        if state.switching_ms > state.timeout_ms {
            over.get_or_insert(state.switching_ms);
        }
    }
    if let Some(ms) = over.filter(|_| machine.timeouts_enabled()) {
        recover(machine, channel, &Exception::Timeout { ms }, None);
    }
}

struct Lines<'a> {
    machine: &'a Machine,
}

impl Lines<'_> {
    fn error(&self, site: Site, text: &str) {
        self.machine.log.error(&self.machine.clock, site, text);
    }

    /// A fault of an SM's access.
    fn gpc_fault(&self, GpcFault { fault, place, channel, veid, .. }: &GpcFault) {
        let client = match fault.access {
            Access::Fetch => gpc_client::GCC,
            _ => gpc_client::T1_0 + place.in_gpc(),
        };
        let client = text(gpc_client::TEXTS, client);
        self.mmu_fault(64 + veid, *channel, fault, "gpc", client, place.gpc);
    }

    /// Tells the owners of channels, each in its notifier before in the log (`nvgpu_set_err_notifier_locked`,
    /// os/linux/linux-channel.c, r36.4.3). A channel whose notifier holds an error, or that has none, is not
    /// reported.
    fn notify(&self, channels: &[Arc<Channel>], code: u32) {
        for channel in channels {
            let notifier = channel.state().notifier.clone();
            let told = notifier.is_some_and(|notifier| notifier.record(code, self.machine.clock.wall()));
            if told && code != nvgpu_sys::NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR {
                let (id, owner) = (channel.id(), &self.machine.comm);
                self.error(
                    SET_NOTIFIER,
                    &format!("error notifier set to {code} for ch {id} owned by {owner}"),
                );
            }
        }
    }

    fn mmu_fault(&self, engine: u32, chid: u32, fault: &MemoryFault, kind: &str, client: &str, gpc: u32) {
        self.error(
            ("gv11b_mm_mmu_fault_handle_buf_valid_entry", 532),
            "page fault error: err_type = 0x8, fault_status = 0x200",
        );
        let access = match fault.access {
            Access::Read | Access::Fetch => access_type::VIRT_READ,
            Access::Write => access_type::VIRT_WRITE,
            Access::Atomic => access_type::VIRT_ATOMIC_STRONG,
        };
        let access = text(access_type::TEXTS, access);
        let address = fault.va & !0xfff;
        self.error(
            ("gv11b_fb_mmu_fault_info_dump", 294),
            &format!(
                "[MMU FAULT] mmu engine id:  {engine}, ch id:  {chid}, fault addr: {address:#x}, fault addr aperture: 0, \
                 fault type: {}, access type: {access}, ",
                text(fault_type::TEXTS, fault.kind)
            ),
        );
        self.error(
            ("gv11b_fb_mmu_fault_info_dump", 307),
            &format!(
                "[MMU FAULT] protected mode: 0, client type: {kind}, client id:  {client}, gpc id if client type is gpc: {gpc}, "
            ),
        );
    }

    /// Recovers after the fault itself. `engine` is the MMU's number of the engine: graphics from 64 on, copy
    /// engines from 15 on (which are engines 2 and up), the host's units from 32 on, which belong to none.
    fn mmu_recovery(&self, tsg: u32, engine: u32, fault: &MemoryFault) {
        let engines = match engine {
            64..=127 => 1,
            15..=20 => 1 << (engine - 13),
            _ => 0,
        };
        // For a copy engine the driver first looks for the page's entry, to make a written but invalid one
        // valid.
        if matches!(engine, 15..=20) && fault.kind == fault_type::PDE {
            self.error(("nvgpu_get_pte", 1486), "Failed!");
        }
        self.error(
            ("nvgpu_rc_mmu_fault_recovery", 399),
            &format!("mmu fault id={tsg} id_type=1 act_eng_bitmask={engines:08x}"),
        );
        self.error(("nvgpu_tsg_set_ctx_mmu_error", 1069), &format!("TSG {tsg} generated a mmu fault"));
    }

    fn sm_error(&self, fault: &sm::Fault, record: &SmRecord, place: SmPlace) {
        let SmPlace { gpc, tpc, sm } = place;
        if record.global_esr & !hww_esr::NO_LOCK_DOWN != 0 {
            let text = format!(
                "sm machine check err. gpc_id({gpc}), tpc_id({tpc}), offset({})",
                register_offset(place)
            );
            self.error(("nvgpu_gr_intr_handle_sm_exception", 365), &text);
        }
        // The driver prints both registers as signed decimals here.
        self.error(
            ("gv11b_gr_intr_record_sm_error_state", 1949),
            &format!(
                "sm err state gpc_id({gpc}), tpc_id({tpc}), offset({}), sm_id({}), hww_global_esr {},hww_warp_esr {}, \
                 hww_warp_esr_pc {:#x}",
                register_offset(place) + sm * hww_esr::SM_STRIDE,
                fault.sm,
                record.global_esr as i32,
                record.warp_esr as i32,
                record.pc
            ),
        );
        let text = format!("sm hww global {:#010x} warp {:#010x}", record.global_esr, record.warp_esr);
        self.error(("nvgpu_gr_intr_handle_sm_exception", 377), &text);
    }

    fn pbdma(&self, intr_0: u32, intr_1: u32, r: &PbdmaRegisters, unit: u32) {
        for name in nv_hw::bit_names(pbdma_intr_0::TEXTS, intr_0) {
            self.error(("ga10b_pbdma_handle_intr_0_legacy", 429), &format!("PBDMA intr {name} Error"));
        }
        if intr_0 != 0 {
            self.error(
                ("ga10b_pbdma_dump_intr_0", 245),
                &format!(
                    "pbdma_intr_0({unit}):{intr_0:#010x} PBH: {:08x} SHADOW: {:08x} gp shadow0: {:08x} \
                     gp shadow1: {:08x}M0: {:08x} 00000000 00000000 00000000 ",
                    r.header,
                    r.shadow,
                    r.entry as u32,
                    r.entry >> 32,
                    r.method
                ),
            );
            self.error(("ga10b_pbdma_report_error", 330), &format!("pbdma_intr_0({unit})= {intr_0:#010x} "));
        }
        if intr_1 >> pbdma_intr_1::CTXNOTVALID & 1 != 0 {
            self.error(("ga10b_pbdma_handle_intr_1", 548), &format!("pbdma_intr_1({unit})= {intr_1:#010x} "));
        } else if intr_1 != 0 {
            let text = format!("hce err: pbdma_intr_1({unit}):{intr_1:#010x}");
            self.error(("gv11b_pbdma_handle_intr_1", 213), &text);
        }
    }

    /// Exceptions of the front end and the copy engine; the notifier code, 0 for one that has none.
    fn graphics(&self, exception: &Exception, tsg: u32) -> u32 {
        let gr = nvgpu_sys::NVGPU_CHANNEL_GR_EXCEPTION;
        match exception {
            Exception::Sked { esr } => {
                let text = format!("sked exception: esr {esr:#010x}");
                self.error(("gm20b_gr_intr_check_gr_sked_exception", 147), &text);
            }
            Exception::ClassMismatch { class, subchannel } => {
                let info = class | subchannel << 16;
                let text = format!(
                    "fe exception: esr {:#010x}, info {info:#010x}",
                    1 << 31 | 1_u32 << fe_esr::CLASS_SUBCH_MISMATCH
                );
                self.error(("gm20b_gr_intr_check_gr_fe_exception", 195), &text);
            }
            Exception::IllegalClass { class } => {
                let text = format!("invalid class {class:#010x}, offset 0x00000000");
                self.error(("gr_intr_handle_illegal_interrupts", 0), &text);
                return nvgpu_sys::NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY;
            }
            Exception::MemoryFormat { esr } => {
                let text = format!("memfmt exception: esr {:08x}", esr | 1 << 31);
                self.error(("gm20b_gr_intr_check_gr_memfmt_exception", 211), &text);
            }
            Exception::Macro { esr } => {
                let text = format!("mme exception: esr {:#010x} info:0x10000000", esr | 1 << 31);
                self.error(("gm20b_gr_intr_check_gr_mme_exception", 126), &text);
            }
            // The driver reports which one it was after it has notified the owner: see `method`.
            Exception::IllegalMethod { .. } => return nvgpu_sys::NVGPU_CHANNEL_GR_ILLEGAL_NOTIFY,
            Exception::ClassError { class, subchannel, address, value, code } => {
                self.error(("gr_intr_handle_error_interrupts", 830), "class error");
                let text = format!(
                    "class error {class:#010x}, offset {address:#010x},sub channel {subchannel:#010x} mme generated 0, \
                     mme pc 0x00000000data high 0 priv status 0 unhandled intr {code:#010x} for channel"
                );
                self.error(("gp10b_gr_intr_handle_class_error", 52), &text);
                let data = format!("trapped data low {value:#010x}");
                self.error(("gp10b_gr_intr_handle_class_error", 65), &data);
                return gr;
            }
            Exception::FirmwareMethod { .. } => {
                return nvgpu_sys::NVGPU_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD;
            }
            Exception::CopyLaunch { code } => {
                let text = format!("ce launch error interrupt with errcode:{code:#x}");
                self.error(("gv11b_ce_stall_isr", 76), &text);
                // The driver has no number for it that a program could read.
                let text = "nvgpu_error_notifier_to_channel_notifier: invalid error_notifier requested 11";
                self.machine.log.push(&self.machine.clock, text.to_owned());
                return 0;
            }
            Exception::Timeout { ms } => {
                let text = format!(
                    "ctxsw timeout error: active engine id =0, tsg={tsg}, info: awaiting ack ms={ms}"
                );
                self.error(("ga10b_fifo_ctxsw_timeout_isr", 289), &text);
                return nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT;
            }
            Exception::ForcedReset => return nvgpu_sys::NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR,
            Exception::Pbdma { .. } | Exception::HubFault { .. } | Exception::Sm { .. } => {}
        }
        self.error(GR_NOTIFIER, "set gr exception notifier");
        gr
    }

    /// The method that an exception is about, where the driver prints it after the notifier.
    fn method(&self, exception: &Exception) {
        match *exception {
            Exception::IllegalMethod { class, subchannel, address, .. } => {
                let text = format!(
                    "invalid method class {class:#010x}, offset {:#010x} address {:#010x}",
                    address / 4,
                    address | subchannel << 16
                );
                self.error(("gr_intr_handle_illegal_method", 168), &text);
                self.error(("gr_intr_handle_illegal_interrupts", 789), "illegal method");
            }
            Exception::FirmwareMethod { class, address, .. } => {
                let text = format!(
                    "firmware method error: mailxbox6 0x00000000, trapped_addr_reg {:#010x} set_falcon_method {address:#010x}, \
                     class {class:#010x} non-whitelist reg: 0x00000000",
                    address | 1 << 16
                );
                self.error(("nvgpu_gr_intr_handle_fecs_error", 453), &text);
            }
            _ => {}
        }
    }

    /// The state the driver prints after recovery.
    fn dump(&self, guilty: &Arc<Channel>, r: PbdmaRegisters) {
        let line = |text: &str| self.machine.log.dump(&self.machine.clock, text);
        line("Channel Status - chip ga10b");
        line("--------------------------");
        for entry in self.machine.gpu.runlist().iter() {
            let Some(channel) = self.machine.channels.of(&entry.instance) else { continue };
            let (tsg, deterministic) = {
                let state = channel.state();
                (state.tsg.as_ref().map_or(u32::MAX, |t| t.id()), state.deterministic)
            };
            let deterministic = if deterministic { "yes" } else { "no" };
            line(&format!(
                "{}-ga10b, TSG: {tsg}, pid {}, thread name {}, refs: 2, deterministic: {deterministic}, domain name: (no domain)",
                channel.id(),
                std::process::id(),
                self.machine.comm
            ));
            if Arc::ptr_eq(&channel, guilty) {
                line("channel status:  in use on_pbdma busy");
                let (at, payload, execute) = r.semaphore;
                line(&format!(
                    "RAMFC: TOP: 000000000000 PUT: {:012x} GET: {:012x} FETCH: 000000000000 HEADER: {:08x} COUNT: 00000000 \
                     SEMAPHORE: addr {at:012x} payload {payload:016x} execute {execute:08x}",
                    r.put, r.get, r.header
                ));
            } else {
                line("channel status:  in use idle not busy");
            }
        }
    }
}

/// Returns the driver's text for a number of the MMU.
fn text(texts: nv_hw::Names, number: u32) -> &'static str {
    nv_hw::name(texts, number).unwrap_or("invalid")
}
