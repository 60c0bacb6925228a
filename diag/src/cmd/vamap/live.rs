//! Address spaces of a running process, read from nvgpu through copies of its descriptors.

#![allow(unsafe_code, reason = "requests to the driver")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::Context;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvdiag::Hex;
use nvdiag::address_map::{Mapping, Range};
use nvgpu_sys::{
    Sys, call, nvgpu_as_get_va_regions_args, nvgpu_as_va_region, nvgpu_dbg_gpu_bind_channel_args,
    nvgpu_dbg_gpu_get_gr_context_size_args, nvgpu_dbg_gpu_get_mappings_args,
    nvgpu_dbg_gpu_get_mappings_entry,
};

/// Node for debugger sessions.
const DEBUG_NODE: &std::ffi::CStr = c"/dev/nvgpu/igpu0/dbg";
/// Most regions read of an address space; nvgpu has two kinds at most.
const MAX_REGIONS: usize = 16;
/// Mappings per request.
const PAGE_OF_MAPPINGS: usize = 1024;
/// End of the address space.
const VA_END: u64 = 1 << 49;

/// Kind of a descriptor of nvgpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address space.
    AddressSpace,
    /// A channel.
    Channel,
}

/// Returns the kind of a descriptor, by the name of its inode, and the number that the name ends with, that of
/// its first descriptor: `nvhost-ga10b-fd9` is an address space (the chip), `nvhost-17000000.gpu-fd12` a
/// channel (the device).
pub fn kind(name: &str) -> Option<(Kind, u32)> {
    let name = name.strip_prefix("anon_inode:").unwrap_or(name);
    let name = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
    let (whose, number) = name.strip_prefix("nvhost-")?.rsplit_once("-fd")?;
    Some((if whose.contains('.') { Kind::Channel } else { Kind::AddressSpace }, number.parse().ok()?))
}

/// The ranges that an address space gives addresses out from.
pub fn regions(sys: &dyn Sys, space: BorrowedFd<'_>, name: &str) -> anyhow::Result<Vec<Range>> {
    let mut regions = [nvgpu_as_va_region::default(); MAX_REGIONS];
    let mut args = nvgpu_as_get_va_regions_args {
        buf_addr: regions.as_mut_ptr().expose_provenance() as u64,
        buf_size: size_of_val(&regions) as u32,
        ..Default::default()
    };
    // SAFETY: the address is that of `regions`, which outlives the call and is as long as stated.
    unsafe { call(sys, space, &mut args) }?;
    let count = args.buf_size as usize / size_of::<nvgpu_as_va_region>();
    let range = |region: &nvgpu_as_va_region| Range {
        name: name.to_owned(),
        va: Hex(region.offset),
        size_bytes: region.pages.saturating_mul(region.page_size.into()),
        page_bytes: Some(region.page_size.into()),
    };
    Ok(regions.iter().take(count).map(range).collect())
}

/// The buffers mapped in the address space of a channel; `None` if it has none that can be read safely.
pub fn mappings(sys: &dyn Sys, channel: BorrowedFd<'_>) -> anyhow::Result<Option<Vec<Mapping>>> {
    let session = sys.open(DEBUG_NODE, OFlag::O_RDWR | OFlag::O_CLOEXEC);
    let session = session.with_context(|| format!("cannot open {}", DEBUG_NODE.to_string_lossy()))?;
    let mut bind =
        nvgpu_dbg_gpu_bind_channel_args { channel_fd: channel.as_raw_fd() as u32, ..Default::default() };
    // SAFETY: the only field is a descriptor, which stays open across the call.
    unsafe { call(sys, session.as_fd(), &mut bind) }?;
    let listed = listed(sys, session.as_fd());
    sys.close(session).context("cannot end the debugger session")?;
    listed
}

fn listed(sys: &dyn Sys, session: BorrowedFd<'_>) -> anyhow::Result<Option<Vec<Mapping>>> {
    // On a request for the mappings of a channel without an address space the driver dereferences a null
    // pointer. A channel whose group has a graphics context has one, so that is checked first.
    let mut context = nvgpu_dbg_gpu_get_gr_context_size_args::default();
    // SAFETY: the struct holds no addresses.
    match unsafe { call(sys, session, &mut context) } {
        Err(error) if error.errno == Errno::EINVAL => return Ok(None),
        answer => answer?,
    };
    let mut found: Vec<Mapping> = Vec::new();
    let mut from = 0;
    loop {
        let mut entries = [nvgpu_dbg_gpu_get_mappings_entry::default(); PAGE_OF_MAPPINGS];
        let mut args = nvgpu_dbg_gpu_get_mappings_args {
            va_lo: from,
            va_hi: VA_END,
            ops_buffer: entries.as_mut_ptr().expose_provenance() as u64,
            count: PAGE_OF_MAPPINGS as u32,
            ..Default::default()
        };
        // SAFETY: the address is that of `entries`, which outlives the call and has as many entries as stated.
        unsafe { call(sys, session, &mut args) }?;
        let entries = &entries[..PAGE_OF_MAPPINGS.min(args.count as usize)];
        let mapping = |e: &nvgpu_dbg_gpu_get_mappings_entry| Mapping {
            va: Hex(e.gpu_va),
            size_bytes: e.size,
            ..Mapping::default()
        };
        found.extend(entries.iter().filter(|e| e.size != 0).map(mapping));
        let end = entries.last().map_or(0, |e| e.gpu_va.saturating_add(e.size));
        if args.has_more == 0 || end <= from {
            return Ok(Some(found));
        }
        from = end;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ga10b_sim::{Sim, SimConfig};
    use hcq::DeviceOptions;
    use nvgpu_sys::Layer;

    use super::*;

    /// The software device, with a list of the descriptors it gave out.
    #[derive(Debug)]
    struct Watched {
        sim: Arc<Sim>,
        answers: Mutex<Vec<i32>>,
    }

    // SAFETY: every call is passed on to an implementation, and its answer returned as it is.
    unsafe impl Layer for Watched {
        fn below(&self) -> &dyn Sys {
            &*self.sim
        }

        unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
            // SAFETY: the caller's promise.
            let answer = unsafe { self.sim.ioctl(fd, request, arg) };
            let made = match request {
                nvgpu_sys::NVGPU_GPU_IOCTL_ALLOC_AS => arg.get(4..8),
                nvgpu_sys::NVGPU_GPU_IOCTL_OPEN_CHANNEL => arg.get(..4),
                _ => None,
            };
            if let (Ok(_), Some(Ok(fd))) = (answer, made.map(<[u8; 4]>::try_from)) {
                self.answers.lock().expect("not poisoned").push(i32::from_ne_bytes(fd));
            }
            answer
        }
    }

    #[test]
    fn descriptors_are_told_apart_by_name() {
        assert_eq!(kind("anon_inode:nvhost-ga10b-fd9"), Some((Kind::AddressSpace, 9)));
        assert_eq!(kind("anon_inode:nvhost-17000000.gpu-fd12"), Some((Kind::Channel, 12)));
        assert_eq!(kind("anon_inode:[nvhost-17000000.gpu-fd12]"), Some((Kind::Channel, 12)));
        assert_eq!(kind("anon_inode:nvgpu-ga10b-tsg3"), None);
        assert_eq!(kind("/dev/nvmap"), None);
    }

    #[test]
    fn a_device_on_the_software_gpu_is_read_through_its_descriptors() {
        let sim = Sim::new(SimConfig::default());
        let watched = Arc::new(Watched { sim: Arc::clone(&sim), answers: Mutex::default() });
        let device = hcq::sys::open_nvgpu(watched.clone(), DeviceOptions::default()).expect("a device");
        let large = device.alloc(9 << 20).expect("memory");
        let _queue = device.queue().expect("a queue");
        let (mut spaces, mut mapped) = (Vec::new(), Vec::new());
        for fd in watched.answers.lock().expect("not poisoned").iter() {
            // SAFETY: the device keeps its descriptors open.
            let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
            match sim.descriptor_name(fd).as_deref().and_then(kind) {
                Some((Kind::AddressSpace, _)) => spaces.extend(regions(&*sim, fd, "user").expect("regions")),
                Some((Kind::Channel, _)) => {
                    mapped.extend(mappings(&*sim, fd).expect("mappings").expect("a context"))
                }
                None => {}
            }
        }
        assert_eq!(spaces.len(), 1, "{spaces:?}");
        assert_eq!(spaces[0].page_bytes, Some(4096));
        let at = large.va().raw();
        let holds = |m: &&Mapping| m.va.0 <= at && at + (9 << 20) <= m.va.0 + m.size_bytes;
        assert!(mapped.iter().any(|m| holds(&m)), "{at:#x} in {mapped:x?}");
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn a_channel_without_an_address_space_is_not_asked() {
        let sim = Sim::new(SimConfig::default());
        let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR).expect("a node");
        let mut open = nvgpu_sys::nvgpu_gpu_open_channel_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { call(&*sim, ctrl.as_fd(), &mut open) }.expect("a channel");
        // SAFETY: the driver made the descriptor just now.
        let channel =
            unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(open.channel_fd) };
        assert_eq!(mappings(&*sim, channel.as_fd()).expect("an answer"), None);
        assert_eq!(sim.violations(), []);
    }
}
