//! What the nvgpu backend asks of the driver: the order of calls, and what becomes of calls that fail.

use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ga10b_sim::{Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, Error, GpuCache, LaunchConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{Layer, Request, Sys};

/// The software device, with a list of what was asked of it, and a call that fails.
#[derive(Debug)]
struct Spy {
    sim: Arc<Sim>,
    calls: Mutex<Vec<String>>,
    /// The arguments of calls, as bytes.
    arguments: Mutex<Vec<(&'static str, Vec<u8>)>>,
    /// Number of the request or mapping that fails.
    fail_at: usize,
    /// A request that always fails.
    refused: Option<&'static str>,
    count: AtomicUsize,
}

impl Spy {
    fn new(fail_at: usize) -> Arc<Self> {
        Arc::new(Self { fail_at, ..Self::on(SimConfig::default()) })
    }

    fn on(config: SimConfig) -> Self {
        Self {
            sim: Sim::new(config),
            calls: Mutex::default(),
            arguments: Mutex::default(),
            fail_at: 0,
            refused: None,
            count: AtomicUsize::new(0),
        }
    }

    /// The arguments of a request's calls, as words.
    fn words_of(&self, name: &str) -> Vec<Vec<u32>> {
        let words =
            |bytes: &[u8]| bytes.chunks_exact(4).map(|w| u32::from_ne_bytes(w.try_into().unwrap())).collect();
        self.arguments.lock().unwrap().iter().filter(|(n, _)| *n == name).map(|(_, b)| words(b)).collect()
    }

    fn note(&self, call: &str) {
        self.calls.lock().unwrap().push(call.to_owned());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn fails(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.fail_at
    }
}

// SAFETY: every call is passed on to an implementation, or refused.
unsafe impl Layer for Spy {
    fn below(&self) -> &dyn Sys {
        &*self.sim
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        self.note(&format!("open {}", path.to_string_lossy()));
        if self.fails() {
            return Err(Errno::EACCES);
        }
        self.sim.open(path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let name = Request::find(request).map_or("unknown", |r| r.name);
        self.note(name);
        self.arguments.lock().unwrap().push((name, arg.to_vec()));
        if self.refused == Some(name) {
            return Err(Errno::ENOTTY);
        }
        // Giving back is not made to fail: there is nothing left to do then but to say so.
        // What a wait asks now and then may come or not.
        let optional = matches!(
            name,
            "NVMAP_IOC_FREE" | "NVGPU_AS_IOCTL_UNMAP_BUFFER" | "NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT"
        );
        if !optional && self.fails() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sim.ioctl(fd, request, arg) }
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        self.note("mmap");
        if self.fails() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sim.mmap(len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        self.note("munmap");
        // SAFETY: passed on from the caller.
        unsafe { self.sim.munmap(addr, len) }
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        let name = self.sim.descriptor_name(fd.as_fd()).unwrap_or_default();
        self.note(&format!("close {name}"));
        self.sim.close(fd)
    }
}

fn work(device: &Device) -> Result<(), Error> {
    let buffers = [device.alloc(1 << 20)?, device.alloc(16 << 20)?, device.alloc(64)?];
    let program = device.load(include_bytes!("data/01_vecadd.sm_87.cubin"))?;
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
        assert!(result.is_err() || known && fail_at == heap_call, "call {fail_at} failed unnoticed");
        let failed_mmap = i64::from(matches!(result, Err(Error::Mmap { .. })));
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
    let arguments = spy.arguments.lock().unwrap();
    let allocations = arguments.iter().filter(|(name, _)| *name == "NVMAP_IOC_ALLOC");
    let flags: Vec<u32> = allocations
        .map(|(_, bytes)| {
            u32::from_ne_bytes(bytes[8..12].try_into().unwrap()) & nvgpu_sys::NVMAP_HANDLE_CACHE_FLAG
        })
        .collect();
    assert!(flags.len() > 5 && !flags.contains(&nvgpu_sys::NVMAP_HANDLE_UNCACHEABLE), "{flags:x?}");
}

const CLASS: &str = "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX";
const MODE: &str = "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE";

#[test]
fn kernels_are_preempted_between_instructions_or_as_the_driver_does_by_itself() {
    for cilp in [true, false] {
        let spy = Arc::new(Spy::on(SimConfig { cilp, ..SimConfig::default() }));
        let device = hcq::sys::open_nvgpu(spy.clone(), DeviceOptions::default()).unwrap();
        let _queue = device.queue().unwrap();
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
    assert_eq!((limits(&spy)[0][0], &veids(&spy)[..1]), (60_000, &[0][..]));
    assert!(spy.words_of("NVGPU_IOCTL_TSG_SET_TIMESLICE").is_empty());

    let spy = Spy::new(0);
    let mut options = DeviceOptions::default();
    (options.switch_limit, options.async_subcontext) = (None, Some(true));
    options.timeslice = Some(Duration::from_millis(20));
    work(&hcq::sys::open_nvgpu(spy.clone(), options.clone()).unwrap()).unwrap();
    assert_eq!((limits(&spy), &veids(&spy)[..1]), (Vec::<Vec<u32>>::new(), &[1][..]));
    assert_eq!(spy.words_of("NVGPU_IOCTL_TSG_SET_TIMESLICE")[0][0], 20_000);
    options.timeslice = Some(Duration::from_secs(1));
    let error = hcq::sys::open_nvgpu(Spy::new(0), options).unwrap_err();
    assert!(error.to_string().contains("SET_TIMESLICE"), "{error}");
}

#[test]
fn conservative_launches_work_in_the_asynchronous_subcontext() {
    let spy = Spy::new(0);
    let mut options = DeviceOptions::default();
    options.conservative = Some(true);
    let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
    work(&device).unwrap();
    assert!(spy.calls().iter().any(|c| c == "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT"));
    assert!(spy.sim.violations().is_empty(), "{:?}", spy.sim.violations());
}

#[test]
fn a_heap_that_cannot_be_asked_is_as_large_as_the_machine_s_memory() {
    let spy = Arc::new(Spy { refused: Some("NVMAP_IOC_QUERY_HEAP_PARAMS"), ..Spy::on(SimConfig::default()) });
    let device = hcq::sys::open_nvgpu(spy, DeviceOptions::default()).unwrap();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!(device.info().memory.count(), kib << 10);
}

/// Flags of the mappings that were made, and those of the cache flushes, in order.
fn caching(cache: GpuCache, work: impl FnOnce(&Device)) -> (Vec<u32>, Vec<u8>) {
    let spy = Spy::new(0);
    let mut options = DeviceOptions::default();
    options.gpu_cache = Some(cache);
    let device = hcq::sys::open_nvgpu(spy.clone(), options).unwrap();
    assert_eq!(device.info().gpu_cache, Some(cache));
    spy.arguments.lock().unwrap().clear();
    work(&device);
    let arguments = spy.arguments.lock().unwrap();
    let of = |name: &'static str| {
        arguments.iter().filter(move |(n, _)| *n == name).map(|(_, bytes)| bytes.clone())
    };
    let maps = of("NVGPU_AS_IOCTL_MAP_BUFFER_EX").map(|b| u32::from_ne_bytes(b[..4].try_into().unwrap()));
    let flushes = of("NVGPU_GPU_IOCTL_FLUSH_L2").map(|b| b[0]);
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
    assert_eq!(flushes, []);
    let (maps, flushes) = caching(GpuCache::Keep, touch);
    let cacheable: Vec<_> = maps.iter().map(|flags| flags & CACHEABLE != 0).collect();
    assert_eq!(cacheable, [true, false], "{maps:x?}");
    assert_eq!(flushes, [3, 3], "written back and emptied before each access");
    // Rings, launch descriptors and signals of a queue.
    let (maps, _) = caching(GpuCache::Keep, |device| drop(device.queue().unwrap()));
    let kept = maps.iter().filter(|flags| *flags & CACHEABLE != 0).count();
    assert!(kept < maps.len(), "{maps:x?}");
}
