//! Steps 4 to 6: memory, addresses, the doorbell page.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nvgpu_sys::{NVMAP_HANDLE_INNER_CACHEABLE, NVMAP_HANDLE_WRITE_COMBINE};

use crate::bringup::client::layout;
use crate::bringup::client::{Channel, Doorbell, Mapping, Nodes, Space, allocate};
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;

/// The cache attributes that memory of hcq has.
pub(super) const CACHING: [(&str, u32); 2] =
    [("write-combined", NVMAP_HANDLE_WRITE_COMBINE), ("cacheable", NVMAP_HANDLE_INNER_CACHEABLE)];
/// nvmap's handles are numbers from here on.
const FIRST_HANDLE: u32 = 0x8000_0000;
/// Class of GA100's user-mode register page, in bits 15:0 of its first word.
const USERMODE_CLASS: u32 = 0xc561;

/// Between two readings of the time; the software ga10b shows it every 50 ms while it has nothing to do.
const PAUSE: Duration = Duration::from_millis(200);

pub fn memory(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let nodes = Nodes::open(&rig.sys)?;
    for (name, cache) in CACHING {
        let (buffer, handle) =
            allocate(&nodes, layout::PAGE, cache).with_context(|| format!("{name} memory"))?;
        let map = || Mapping::new(&rig.sys, buffer.as_fd(), layout::PAGE as usize);
        let (one, other) = (map().context(name)?, map().context(name)?);
        let pattern = |index: usize| (index as u32).wrapping_mul(0x9e37_79b1) | 1;
        for index in 0..one.words() {
            let word = one.u32(index * 4).load(Ordering::Acquire);
            ensure!(word == 0, "{name} memory is not zeroed: word {index} is {word:#x}");
        }
        for index in 0..one.words() {
            one.u32(index * 4).store(pattern(index), Ordering::Release);
        }
        hcq::sys::store_barrier();
        for index in 0..other.words() {
            let word = other.u32(index * 4).load(Ordering::Acquire);
            ensure!(
                word == pattern(index),
                "{name} memory: word {index} reads {word:#x} through another mapping"
            );
        }
        notes.fact(name, "zeroed, keeps a pattern");
        notes.judge(
            &format!("handle of {name} memory"),
            format!("{handle:#x}"),
            handle >= FIRST_HANDLE,
            format!("a number from {FIRST_HANDLE:#x} on"),
            "agx-orin-dev-kit, test_gpu_submit.log; an older nvmap gives descriptors",
        );
    }
    Ok(())
}

pub fn addresses(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let nodes = Nodes::open(&rig.sys)?;
    Space::new(&nodes)?;
    let range = |from: u64, to: u64| format!("{from:#x} to {to:#x}");
    notes.fact("buffers", range(layout::ARENA, layout::LOCAL_WINDOW));
    notes.fact("shared-memory window", format!("{:#x}", layout::SHARED_WINDOW));
    notes.fact("local-memory window", format!("{:#x}", layout::LOCAL_WINDOW));
    Ok(())
}

pub fn doorbell(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let nodes = Nodes::open(&rig.sys)?;
    let _group = Channel::group(&nodes)?;
    let page = Doorbell::map(&nodes).context("the register page cannot be mapped")?;
    // Nothing rests on it: the driver takes the page's place from TU104, whose class is C461.
    notes.expect(
        "class of the page",
        format!("{:#x}", page.first_word() & 0xffff),
        format!("{USERMODE_CLASS:#x}"),
        "that of GA100; ga10b's own is not public, its driver has include/nvgpu/hw/tu104/hw_usermode_tu104.h",
    );
    let first = page.time();
    thread::sleep(PAUSE);
    let passed = page.time().wrapping_sub(first);
    // As far as the software shows it, and for a process that waited for its turn.
    let near = PAUSE.as_nanos() as u64 / 10..5_000_000_000;
    notes.judge(
        "time",
        format!("{:.0} ms passed in {PAUSE:?}", passed as f64 / 1e6),
        near.contains(&passed),
        "the GPU's time in ns goes on",
        "usermode_time_0_r in include/nvgpu/hw/tu104/hw_usermode_tu104.h, r36.4.3",
    );
    let second = match Doorbell::map(&nodes) {
        Err(errno) => format!("refused with {errno:?}"),
        Ok(_) => "not refused".to_owned(),
    };
    let expected = format!("refused with {:?}", Errno::EBUSY);
    notes.expect("a second mapping", second, expected, "os/linux/ioctl_ctrl.c, r36.4.3");
    Ok(())
}
