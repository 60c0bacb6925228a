//! Makes a known number of calls on a node, for the tests of `nvdiag trace` and to measure what tracing
//! costs.
//!
//! `gpu_calls NODE` sends requests of nvgpu from a main thread, a second thread and a child, and prints how
//! many; the node may be any file, which refuses them. `gpu_calls --device LOG` opens the GPU through hcq and
//! keeps its own log. `gpu_calls --time COUNT NODE` prints how long one request takes.

use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hcq::DeviceOptions;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvdiag::trace::Traced;
use nvgpu_sys::{Linux, REQUESTS, Sys};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["--device", log] => device(log),
        ["--time", count, node] => time(count.parse()?, node),
        ["--child", node] => {
            every_request(open(node)?.as_fd());
            Ok(())
        }
        [node] => calls(node),
        _ => Err("usage: gpu_calls NODE | --device LOG | --time COUNT NODE".into()),
    }
}

fn open(node: &str) -> Result<std::os::fd::OwnedFd, Box<dyn Error>> {
    Ok(Linux.open(&CString::new(node)?, OFlag::O_RDONLY)?)
}

/// Sends every request of nvgpu and nvmap once, with an argument of zeros; whether it is served does not
/// matter.
fn every_request(fd: BorrowedFd<'_>) {
    for request in REQUESTS {
        let mut argument = vec![0; request.size];
        // SAFETY: the argument is as long as the request says, and zeros are no address or descriptor of
        // ours.
        let _ = unsafe { Linux.ioctl(fd, request.request, &mut argument) };
    }
}

fn calls(node: &str) -> Result<(), Box<dyn Error>> {
    let fd = open(node)?;
    every_request(fd.as_fd());
    let copy = fd.try_clone()?;
    std::thread::spawn(move || every_request(copy.as_fd())).join().map_err(|_| "the thread failed")?;
    // A request that no driver has.
    // SAFETY: as above.
    let unknown = unsafe { Linux.ioctl(fd.as_fd(), 0xc008_58ff, &mut [1, 2, 3, 4, 5, 6, 7, 8]) };
    assert!(unknown.is_err_and(|errno| errno != Errno::EFAULT));
    let child = Command::new(std::env::current_exe()?).args(["--child", node]).status()?;
    assert!(child.success());
    println!("{}", REQUESTS.len() * 3 + 1);
    Ok(())
}

fn device(log: &str) -> Result<(), Box<dyn Error>> {
    let name = |fd: BorrowedFd<'_>| format!("{fd:?}");
    let traced = Traced::new(Linux, Box::new(File::create(log)?), name)?;
    let device = hcq::sys::open_nvgpu(Arc::new(traced), DeviceOptions::default())?;
    let cubin = include_bytes!("../../hcq/tests/data/01_vecadd.sm_87.cubin");
    let kernel = device.load(cubin)?.kernel("vadd_f32")?;
    let (a, b, c) = (device.alloc(4096)?, device.alloc(9 << 20)?, device.alloc(4096)?);
    a.write_slice(0, &[1.5_f32])?;
    b.write_slice(0, &[2.0_f32])?;
    let mut queue = device.queue()?;
    let args = hcq::Args::new().buffer(&a).buffer(&b).buffer(&c).u32(1);
    // SAFETY: the kernel adds one element of `a` and `b`, and writes one of `c`.
    unsafe { queue.launch(&kernel, hcq::LaunchConfig::new(1, 32), &args) }?;
    queue.submit()?.wait(Duration::from_secs(30))?;
    let mut sum = [0; 4];
    c.read(0, &mut sum)?;
    println!("{}", f32::from_le_bytes(sum));
    Ok(())
}

/// Times `count` requests that the node refuses, and as many calls that no trace is about.
fn time(count: u32, node: &str) -> Result<(), Box<dyn Error>> {
    let fd = open(node)?;
    let start = Instant::now();
    for _ in 0..count {
        // SAFETY: the argument is as long as the request says, and holds no address.
        let _ = unsafe { Linux.ioctl(fd.as_fd(), nvgpu_sys::NVGPU_GPU_IOCTL_NUM_VSMS, &mut [0; 8]) };
    }
    let request = start.elapsed() / count.max(1);
    let start = Instant::now();
    for _ in 0..count {
        std::hint::black_box(nix::unistd::getppid());
    }
    let other = start.elapsed() / count.max(1);
    println!("ioctl {} ns, getppid {} ns", request.as_nanos(), other.as_nanos());
    Ok(())
}
