//! `libnvgpu_sim.so`: the software ga10b for unmodified programs.
//!
//! ```text
//! LD_PRELOAD=libnvgpu_sim.so NVGPU_SIM_VERBOSE=1 ./program
//! ```
//!
//! The library interposes the functions of the C library by which programs find and use the nodes: `open`,
//! `opendir`, `stat`, `access`, `ioctl`, `mmap`, `read`, `write`, `poll`, `epoll_ctl`, `fcntl`, `close`, `dup2` and
//! their kin; and `dlsym`, for programs that take them from the C library's own handle, as Python's `ctypes` does. Pointers that the program passes are
//! read and written by the kernel, so that a bad one is `EFAULT`. Calls on the nodes of the GPU's
//! driver go to a [`ga10b_sim::Sim`] inside the process, which is made when the first node is opened;
//! everything else goes to the kernel.
//! Descriptors of the machine are real ones, so `dup`, `sendmsg` and `lseek` need no help. A forked child has no
//! GPU until it executes another program: there, calls on nodes and on inherited descriptors are `ENODEV`, with a
//! line on stderr, and nothing is left of mappings. Programs that make system calls themselves, and listings of
//! `/dev`, do not see the nodes; `docs/clients.md` has the differences.
//!
//! Environment: `NVGPU_SIM_ARCH` (`sm_80`, `sm_86`, `sm_87`, `sm_89` or `sm_90`), `NVGPU_SIM_MEMORY` (bytes),
//! `NVGPU_SIM_SMS`, `NVGPU_SIM_CHECK` (`memory`, `init`, `race`, `sync` or `all`: mistakes of kernels to search
//! for; the functions of `include/nvgpu_sim.h` say what lies where), `NVGPU_SIM_FINDINGS` (a file
//! for the findings, as `nvdiag check` sets it), `NVGPU_SIM_VERBOSE` (kernel-log lines on
//! stderr), `NVGPU_SIM_VISIBLE` (`nvdiag esr --pid` and `nvdiag vamap --pid` of the same user may inspect the
//! device), which [`SimConfig::from_env`](ga10b_sim::SimConfig::from_env) reads;
//! `NVGPU_SIM_TRACE` (each call is reported to `nvdiag trace`, which would not see it otherwise).
//!
//! # Layers
//! ```text
//! symbols  symbols          # the functions that are interposed
//! calls    descriptors files forks listings mappings notes requests status transfers  # system calls
//! paths    folders paths    # paths of the machine, and folders in them
//! machine  machine mark     # the machine of this process
//! kernel   kernel original  # the kernel, and the functions of the C library
//! ```

mod descriptors;
mod files;
mod folders;
mod forks;
mod kernel;
mod listings;
mod machine;
mod mappings;
mod mark;
mod notes;
mod original;
mod paths;
mod requests;
mod status;
mod symbols;
mod transfers;
