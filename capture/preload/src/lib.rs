//! `libnvdiag_capture.so`: captures the submissions of an unmodified program.
//!
//! ```text
//! nvdiag trace --submissions -- ./program
//! ```
//!
//! The library interposes the functions of the C library by which a program reaches GPU memory: `ioctl`,
//! `mmap`, `munmap`, `mremap`, `close`, `dup`, `fcntl`. A [`ga10b_capture::Watcher`] learns from them where
//! rings and pushbuffers are mapped, and a thread reads `GP_PUT` of each channel, from the first channel on.
//! New entries are reported to the tracer of the process by a `prctl` that no kernel knows; without a tracer
//! nothing happens. A forked child is not followed until it executes another program.
//!
//! Environment: `NVDIAG_CAPTURE_ENTRIES` (entries of a channel that are read). With `NVGPU_SIM_SUBMISSIONS`, libnvgpu_sim.so reports what its own channels
//! fetch, and this library nothing.
//!
//! # Layers
//! ```text
//! calls     calls     # the functions that are interposed
//! watch     watch     # the watcher of this process
//! original  original  # the functions of the C library
//! ```

mod calls;
mod original;
mod watch;
