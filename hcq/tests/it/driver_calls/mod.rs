//! The driver calls of the nvgpu backend: their order, and the effect of calls that fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ga10b_sim::SimConfig;
use hcq::{
    Args, CommandMemory, Device, DeviceOptions, DriverError, Error, GpuCache, Interleave, LaunchConfig,
    Preemption, Profile, Subcontext,
};

mod field;
mod releases;
mod spy;

use spy::Spy;

fn with_profile(change: impl FnOnce(&mut Profile)) -> DeviceOptions {
    let mut options = DeviceOptions::default();
    change(&mut options.profile);
    options
}

fn work(device: &Device) -> Result<(), Error> {
    let buffers = [device.alloc(1 << 20)?, device.alloc(16 << 20)?, device.alloc(64)?];
    let program = device.load(include_bytes!("../../data/01_vecadd.sm_87.cubin"))?;
    let kernel = program.kernel("vadd_f32")?;
    let mut queue = device.queue()?;
    let [a, b, c] = &buffers;
    let args = Args::new().buffer(a).buffer(b).buffer(c).u32(16);
    // SAFETY: 16 elements of each buffer.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }?;
    queue.submit()?.wait(Duration::from_secs(60))
}

#[test]
fn the_windows_are_reserved_before_anything_is_mapped() {
    let spy = Spy::new(0);
    let device = hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap();
    device.alloc(1 << 20).unwrap();
    let calls = spy.calls();
    let at = |name: &str| calls.iter().position(|c| c == name).unwrap();
    assert_eq!(at("NVGPU_AS_IOCTL_ALLOC_SPACE"), at("NVGPU_GPU_IOCTL_ALLOC_AS") + 1, "{calls:?}");
    let last_reserved = calls.iter().rposition(|c| c == "NVGPU_AS_IOCTL_ALLOC_SPACE").unwrap();
    assert!(last_reserved < at("NVGPU_AS_IOCTL_MAP_BUFFER_EX"), "{calls:?}");
    assert_eq!(
        calls.iter().filter(|c| *c == "NVGPU_AS_IOCTL_ALLOC_SPACE").count(),
        3,
        "two windows and the arena"
    );
}

#[test]
fn a_channel_is_bound_and_set_up_in_the_order_the_driver_needs() {
    let spy = Spy::new(0);
    let device = hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap();
    let queue = device.queue().unwrap();
    let calls = spy.calls();
    let order = [
        "NVGPU_GPU_IOCTL_OPEN_CHANNEL",
        "NVGPU_AS_IOCTL_BIND_CHANNEL",
        "NVGPU_TSG_IOCTL_BIND_CHANNEL_EX",
        "NVGPU_IOCTL_CHANNEL_WDT",
        "NVGPU_IOCTL_CHANNEL_SETUP_BIND",
        "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX",
        "NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER",
    ];
    let at = order
        .map(|name| calls.iter().position(|c| c == name).unwrap_or_else(|| panic!("no {name} in {calls:?}")));
    assert!(at.is_sorted(), "{calls:?}");
    drop(queue);
    drop(device);
    assert!(spy.sim.violations().is_empty(), "{:?}", spy.sim.violations());
}

#[test]
fn everything_is_closed_and_the_channel_before_what_it_stands_on() {
    let spy = Spy::new(0);
    let device = hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap();
    let queue = device.queue().unwrap();
    drop(device);
    drop(queue);
    let closes: Vec<String> = spy.calls().into_iter().filter(|c| c.starts_with("close")).collect();
    let at = |part: &str| {
        closes.iter().position(|c| c.contains(part)).unwrap_or_else(|| panic!("{part}: {closes:?}"))
    };
    assert!(at("nvhost-17000000.gpu") < at("tsg"), "{closes:?}");
    assert!(at("tsg") < at("nvhost-ga10b"), "{closes:?}");
    let calls = spy.calls();
    let count = |name: &str| calls.iter().filter(|c| *c == name).count();
    assert_eq!(count("mmap"), count("munmap"));
}

#[test]
fn the_subcontext_is_reserved_once_for_all_channels_and_again_when_they_are_gone() {
    let spy = Spy::new(0);
    let device = hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap();
    let reserved = || spy.calls().iter().filter(|c| *c == "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT").count();
    let (first, second) = (device.queue().unwrap(), device.queue().unwrap());
    drop(first);
    let third = device.queue().unwrap();
    assert_eq!(reserved(), 1);
    drop((second, third));
    device.queue().unwrap();
    assert_eq!(reserved(), 2);
}

#[test]
fn every_call_that_fails_is_an_error_and_leaks_nothing() {
    let clean = Spy::new(0);
    work(&hcq::sys::open_nvgpu(clean.clone(), DeviceOptions::default()).unwrap()).unwrap();
    let calls = clean.count.load(Ordering::Relaxed);
    assert!(calls > 40, "{calls} calls");
    let balance = |spy: &Spy| {
        let calls = spy.calls();
        let count = |name: &str| calls.iter().filter(|c| *c == name).count();
        count("mmap") as i64 - count("munmap") as i64
    };
    assert_eq!(balance(&clean), 0);
    let heap_call = {
        let spy = Spy::new(0);
        drop(hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap());
        let calls = spy.calls();
        calls.iter().position(|c| c == "NVMAP_IOC_QUERY_HEAP_PARAMS").unwrap() + 1
    };
    for fail_at in 1..=calls {
        let spy = Spy::new(fail_at);
        let result =
            hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).and_then(|device| work(&device));
        let calls = spy.calls();
        // The size of memory is known from elsewhere too.
        let known = calls.last().is_some_and(|_| calls.iter().any(|c| c == "NVMAP_IOC_QUERY_HEAP_PARAMS"));
        // A node that may not be written is opened for reading.
        let opens = |at: usize| calls.get(at).is_some_and(|call| call == "open /dev/nvmap");
        let is_open_again = opens(fail_at - 1) && opens(fail_at);
        let goes_on = is_open_again || known && fail_at == heap_call;
        assert!(result.is_err() || goes_on, "call {fail_at} failed unnoticed");
        let failed_mmap = i64::from(matches!(result, Err(Error::Driver(DriverError::Mmap { .. }))));
        assert_eq!(balance(&spy), failed_mmap, "call {fail_at}: {result:?}");
        if let Err(error) = &result {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Unaligned accesses of the CPU to such memory are SIGBUS on an Orin, and none on the host of the model.
#[test]
fn memory_is_never_uncacheable_to_the_cpu() {
    let spy = Spy::new(0);
    work(&hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap()).unwrap();
    let allocations = spy.words_of("NVMAP_IOC_ALLOC").into_iter();
    let flags: Vec<u32> = allocations.map(|words| words[2] & nvgpu_sys::NVMAP_HANDLE_CACHE_FLAG).collect();
    assert!(flags.len() > 5 && !flags.contains(&nvgpu_sys::NVMAP_HANDLE_UNCACHEABLE), "{flags:x?}");
}

const CLASS: &str = "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX";
const MODE: &str = "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE";

#[test]
fn kernels_are_preempted_between_instructions_or_as_the_driver_does_by_itself() {
    let wanted = [Some(Preemption::Instructions), Some(Preemption::WaitForIdle), None];
    for (cilp, preemption) in wanted.into_iter().flat_map(|wanted| [(true, wanted), (false, wanted)]) {
        let spy = Arc::new(Spy::on(SimConfig { cilp, ..SimConfig::default() }));
        let options = with_profile(|profile| profile.preemption = preemption);
        let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
        let _queue = device.queue().unwrap();
        let cilp = cilp && preemption == Some(Preemption::Instructions);
        let effect = if cilp { Preemption::Instructions } else { Preemption::WaitForIdle };
        assert_eq!(device.preemption(), effect);
        let modes: Vec<u32> = spy.words_of(MODE).iter().map(|words| words[1]).collect();
        assert_eq!(modes, if cilp { vec![nvgpu_sys::NVGPU_COMPUTE_PREEMPTION_MODE_CILP] } else { vec![] });
        let order: Vec<String> = spy.calls().into_iter().filter(|c| c == CLASS || c == MODE).collect();
        assert_eq!(order, if cilp { vec![CLASS, MODE, CLASS] } else { vec![CLASS, CLASS] });
        let classes: Vec<u32> = spy.words_of(CLASS).iter().map(|words| words[0]).collect();
        assert_eq!(classes, [0xc7c0, 0xc7b5], "the context's first class decides its mode");
    }
}

#[test]
fn limits_slices_and_subcontexts_are_what_the_options_say() {
    let limits = |spy: &Spy| spy.words_of("NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX");
    let veids = |spy: &Spy| -> Vec<u32> {
        spy.words_of("NVGPU_TSG_IOCTL_BIND_CHANNEL_EX").iter().map(|words| words[1]).collect()
    };
    let spy = Spy::new(0);
    work(&hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap()).unwrap();
    assert_eq!((limits(&spy)[0][0], &veids(&spy)[..1]), (10_000, &[1][..]));
    assert!(spy.words_of("NVGPU_IOCTL_TSG_SET_TIMESLICE").is_empty());

    let spy = Spy::new(0);
    let mut options = with_profile(|profile| profile.subcontext = Some(Subcontext::Sync));
    options.switch_limit = None;
    options.timeslice = Some(Duration::from_millis(20));
    work(&hcq::sys::open_nvgpu(spy.clone(), options.clone()).unwrap()).unwrap();
    assert_eq!((limits(&spy), &veids(&spy)[..1]), (Vec::<Vec<u32>>::new(), &[0][..]));
    assert_eq!(spy.words_of("NVGPU_IOCTL_TSG_SET_TIMESLICE")[0][0], 20_000);
    assert!(spy.words_of("NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE").is_empty());
    for slice in [Duration::from_micros(999), Duration::from_secs(1)] {
        options.timeslice = Some(slice);
        let error = hcq::sys::open_nvgpu(Spy::new(0), options.clone()).unwrap_err().to_string();
        assert!(error.contains("timeslice") && error.contains("1 ms to 50 ms"), "{error}");
    }
}

#[test]
fn the_level_on_the_run_list_is_what_the_options_say() {
    for (level, number) in [(Interleave::Low, 0), (Interleave::Medium, 1), (Interleave::High, 2)] {
        let spy = Spy::new(0);
        let mut options = DeviceOptions::default();
        options.interleave = Some(level);
        work(&hcq::sys::open_nvgpu(spy.clone(), options).unwrap()).unwrap();
        assert_eq!(spy.words_of("NVGPU_IOCTL_TSG_SET_RUNLIST_INTERLEAVE"), [[number, 0]]);
    }
}

#[test]
fn commands_are_cacheable_unless_the_profile_says_otherwise_and_rings_never() {
    const COMBINED: u32 = nvgpu_sys::NVMAP_HANDLE_WRITE_COMBINE;
    // Write-combined allocations, and all, of a device with one queue.
    let combined = |options| {
        let spy = Spy::new(0);
        let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
        let _queue = device.queue().unwrap();
        let flags = spy.words_of("NVMAP_IOC_ALLOC").into_iter().map(|words| words[2]);
        let flags: Vec<u32> = flags.map(|flags| flags & nvgpu_sys::NVMAP_HANDLE_CACHE_FLAG).collect();
        (flags.iter().filter(|flags| **flags == COMBINED).count(), flags.len())
    };
    let (rings, all) = combined(DeviceOptions::default());
    assert_eq!(rings, 2, "a ring and a USERD page");
    let profile = with_profile(|profile| profile.command_memory = Some(CommandMemory::WriteCombined));
    assert_eq!(combined(profile), (rings + 2, all), "pushbuffers and launch memory too");
    let mut conservative = DeviceOptions::default();
    conservative.conservative = Some(true);
    assert_eq!(combined(conservative), (rings + 1, all), "signals");
}

#[test]
fn conservative_launches_work_in_the_asynchronous_subcontext() {
    let spy = Spy::new(0);
    let mut options = DeviceOptions::default();
    options.conservative = Some(true);
    let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
    work(&device).unwrap();
    // Copies in order on a channel that was given the compute class alone.
    let [from, to] = [0; 2].map(|_| device.alloc(1 << 20).unwrap());
    from.write(0, &[7; 64]).unwrap();
    let mut queue = device.queue().unwrap();
    queue.copy(&from, 0, &to, 0, 64).unwrap();
    queue.submit().unwrap().wait(Duration::from_secs(60)).unwrap();
    let mut copied = [0; 64];
    to.read(0, &mut copied).unwrap();
    assert_eq!(copied, [7; 64]);
    let classes: Vec<u32> = spy.words_of(CLASS).iter().map(|words| words[0]).collect();
    assert!(!classes.is_empty() && classes.iter().all(|class| *class == 0xc7c0), "{classes:x?}");
    assert!(spy.calls().iter().any(|c| c == "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT"));
    assert!(spy.sim.violations().is_empty(), "{:?}", spy.sim.violations());
}

#[test]
fn a_heap_that_cannot_be_asked_is_as_large_as_the_machine_s_memory() {
    let spy = Arc::new(Spy { refused: Some("NVMAP_IOC_QUERY_HEAP_PARAMS"), ..Spy::on(SimConfig::default()) });
    let device = hcq::sys::open_nvgpu(spy, DeviceOptions::default()).unwrap();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(device.info().memory, kib << 10);
}

/// Flags of the mappings that were made, and those of the cache flushes, in order.
fn caching(cache: GpuCache, work: impl FnOnce(&Device)) -> (Vec<u32>, Vec<u8>) {
    let spy = Spy::new(0);
    let mut options = DeviceOptions::default();
    options.gpu_cache = Some(cache);
    let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
    assert_eq!(device.info().gpu_cache, Some(cache));
    spy.forget();
    work(&device);
    let maps = spy.words_of("NVGPU_AS_IOCTL_MAP_BUFFER_EX").into_iter().map(|words| words[0]);
    let flushes = spy.bytes_of("NVGPU_GPU_IOCTL_FLUSH_L2").into_iter().map(|bytes| bytes[0]);
    (maps.collect(), flushes.collect())
}

#[test]
fn bulk_memory_is_cacheable_only_when_asked_for_and_then_flushed_before_the_cpu_touches_it() {
    let touch = |device: &Device| {
        let buffer = device.alloc(16 << 20).unwrap();
        buffer.write(0, &[1; 8]).unwrap();
        buffer.read(0, &mut [0; 8]).unwrap();
        // Memory that both sides poll is never kept.
        let shared = device.alloc_host(16 << 20).unwrap();
        shared.write(0, &[1; 8]).unwrap();
        shared.read(0, &mut [0; 8]).unwrap();
    };
    const CACHEABLE: u32 = nvgpu_sys::NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE;
    let (maps, flushes) = caching(GpuCache::Bypass, touch);
    assert!(maps.len() >= 2 && maps.iter().all(|flags| flags & CACHEABLE == 0), "{maps:x?}");
    assert_eq!(flushes, [0_u8; 0]);
    let (maps, flushes) = caching(GpuCache::Keep, touch);
    let cacheable: Vec<_> = maps.iter().map(|flags| flags & CACHEABLE != 0).collect();
    assert_eq!(cacheable, [true, false], "{maps:x?}");
    assert_eq!(flushes, [3, 3], "written back and emptied before each access");
    // Rings, launch descriptors and signals of a queue.
    let (maps, _) = caching(GpuCache::Keep, |device| drop(device.queue().unwrap()));
    let kept = maps.iter().filter(|flags| *flags & CACHEABLE != 0).count();
    assert!(kept < maps.len(), "{maps:x?}");
}
