//! SM records of a running process: the driver keeps them with the channel group until it is closed.

use std::os::fd::{AsFd, BorrowedFd};

use nvdiag::fault::Incident;
use nvgpu_sys::{Sys, sm_error_state};

use crate::cmd::process::{Descriptor, Process, nothing_to_ask};

/// Most SMs requested; the driver refuses the first that the chip does not have.
const MAX_SMS: u32 = 256;

/// The records of each channel group of a process that has any.
pub fn records(process: &Process, descriptors: &[Descriptor]) -> anyhow::Result<Vec<Incident>> {
    let mut groups: Vec<_> = descriptors.iter().filter(|d| is_group(&d.name)).collect();
    // Copies of a descriptor have its name: the driver numbers groups.
    groups.sort_by_key(|d| &d.name);
    groups.dedup_by_key(|d| &d.name);
    if groups.is_empty() {
        return Err(nothing_to_ask(process, "channel group"));
    }
    let mut incidents = Vec::new();
    for group in groups {
        let Some(copy) = process.copy(group)? else { continue };
        let incident = read(process.driver(), copy.as_fd());
        if !incident.entries.is_empty() {
            incidents.push(incident);
        }
    }
    Ok(incidents)
}

/// Whether a descriptor is a channel group's, by the name the kernel shows for it
/// (`anon_inode:nvgpu-ga10b-tsg3`).
fn is_group(name: &str) -> bool {
    let name = name.strip_prefix("anon_inode:").unwrap_or(name);
    name.starts_with("nvgpu-") && name.contains("tsg")
        || name.starts_with("/dev/nvgpu/") && name.ends_with("/tsg")
}

/// The records of a group's SMs that reported an exception.
fn read(sys: &dyn Sys, group: BorrowedFd<'_>) -> Incident {
    let mut incident = Incident::default();
    for (sm, record) in (0..MAX_SMS).map_while(|sm| Some((sm, sm_error_state(sys, group, sm).ok()?))) {
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
}
