//! SM records of a running process: the driver keeps them with the channel group until it is closed.

#![allow(unsafe_code, reason = "requests to the driver carry addresses")]

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, ensure};
use nvdiag::fault::Incident;
use nvgpu_sys::{Sys, call, nvgpu_tsg_read_single_sm_error_state_args, nvgpu_tsg_sm_error_state_record};

use super::process::{Process, descriptors, name};

/// SMs asked for at most; the driver refuses the first that the chip does not have.
const MAX_SMS: u32 = 256;

/// The records of each channel group of a process that has any.
pub fn records(sys: &dyn Sys, pid: u32) -> anyhow::Result<Vec<Incident>> {
    let all = descriptors(pid).with_context(|| {
        format!("cannot see the descriptors of process {pid}: it has ended, or belongs to another user (run as root)")
    })?;
    let groups: Vec<_> = all.into_iter().filter(|d| is_group(&d.name)).collect();
    ensure!(
        !groups.is_empty(),
        "process {pid} ({}) holds no channel group of nvgpu; for other drivers `nvdiag esr` reads the kernel log",
        name(pid)
    );
    let process = Process::open(pid).with_context(|| format!("cannot open process {pid}"))?;
    let mut incidents = Vec::new();
    for group in groups {
        let copy = process.duplicate(group.number).with_context(|| {
            format!(
                "cannot copy descriptor {} of process {pid}; it needs the right to trace it (run as root)",
                group.number
            )
        })?;
        let incident = read(sys, copy.as_fd());
        if !incident.entries.is_empty() {
            incidents.push(incident);
        }
    }
    Ok(incidents)
}

/// Whether a descriptor is a channel group's, by the name the kernel shows for it (`anon_inode:nvgpu-ga10b-tsg3`).
fn is_group(name: &str) -> bool {
    let name = name.strip_prefix("anon_inode:").unwrap_or(name);
    name.starts_with("nvgpu-") && name.contains("tsg")
        || name.starts_with("/dev/nvgpu/") && name.ends_with("/tsg")
}

/// The records of a group's SMs that reported an exception.
fn read(sys: &dyn Sys, group: BorrowedFd<'_>) -> Incident {
    let mut incident = Incident::default();
    for sm in 0..MAX_SMS {
        let mut record = nvgpu_tsg_sm_error_state_record::default();
        let mut args = nvgpu_tsg_read_single_sm_error_state_args {
            sm_id: sm,
            record_mem: (&raw mut record).expose_provenance() as u64,
            record_size: size_of_val(&record) as u64,
            ..Default::default()
        };
        // SAFETY: the address is that of `record`, which outlives the call and is as long as stated.
        if unsafe { call(sys, group, &mut args) }.is_err() {
            break;
        }
        if record.global_esr != 0 || record.warp_esr != 0 {
            let (warp, global, pc) = (record.warp_esr, record.global_esr, record.warp_esr_pc);
            incident.add_registers(Some(sm), warp, global, Some(pc), None);
        }
    }
    incident
}

#[cfg(test)]
mod tests {
    use nix::fcntl::OFlag;

    use super::*;

    #[test]
    fn groups_are_told_by_the_name_of_their_descriptor() {
        for name in ["anon_inode:nvgpu-ga10b-tsg3", "nvgpu-ga10b-tsg0"] {
            assert!(is_group(name), "{name}");
        }
        for name in
            ["anon_inode:nvhost-17000000.gpu-fd12", "/dev/nvmap", "socket:[1]", "anon_inode:[eventpoll]"]
        {
            assert!(!is_group(name), "{name}");
        }
    }

    #[test]
    fn a_group_without_faults_has_no_records() {
        let sim = ga10b_sim::Sim::try_new(ga10b_sim::SimConfig::default()).expect("a software GPU");
        let group = sim.open(c"/dev/nvgpu/igpu0/tsg", OFlag::O_RDWR).expect("a channel group");
        assert!(read(&*sim, group.as_fd()).entries.is_empty());
    }

    #[test]
    fn a_process_without_channels_is_told_from_one_that_is_gone() {
        let ours = records(&nvgpu_sys::Linux, std::process::id()).expect_err("no channel here");
        assert!(ours.to_string().contains("holds no channel group"), "{ours}");
        let gone = records(&nvgpu_sys::Linux, u32::MAX).expect_err("no such process");
        assert!(gone.to_string().contains("cannot see the descriptors"), "{gone}");
    }
}
