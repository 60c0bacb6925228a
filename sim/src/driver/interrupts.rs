//! The driver's answer to the GPU's interrupts.

use crate::driver::machine::Machine;
use crate::driver::recovery::{handle_late_faults, recover, switch_timeout};
use crate::gpu::exception::{Exception, PbdmaRegisters};
use crate::gpu::instance::Instance;
use crate::gpu::interrupts::Interrupts;

impl Interrupts for Machine {
    fn non_stalling(&self) {
        for entry in self.gpu.runlist().iter() {
            let tsg = self.channels.of(&entry.instance).and_then(|channel| channel.state().tsg.clone());
            if let Some(tsg) = tsg {
                tsg.post_event(nvgpu_sys::NVGPU_IOCTL_CHANNEL_EVENT_ID_BLOCKING_SYNC);
            }
        }
    }

    fn stalling(&self, channel: &Instance, exception: &Exception, registers: PbdmaRegisters) {
        match self.channels.of(channel) {
            Some(channel) => recover(self, &channel, exception, Some(registers)),
            None => channel.kill(),
        }
    }

    fn switch_timeout(&self, channel: &Instance, times: u32) {
        for _ in 0..times {
            match self.channels.of(channel) {
                Some(channel) if !channel.instance.is_stopped() => switch_timeout(self, &channel),
                // The driver finds no group that it knows, and does nothing.
                _ => return,
            }
        }
    }

    fn housekeeping(&self) {
        handle_late_faults(self);
        self.collect_closed();
    }
}
