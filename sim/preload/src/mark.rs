//! Reports the calls that the machine serves to a tracer, since they never reach the kernel.

use ga10b_capture::{TRACE_MARK, TraceMark};
use nix::errno::Errno;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Whether the call in progress is reported.
pub(crate) struct Mark(bool);

/// An answer as a number: a descriptor, an address, 0.
pub(crate) trait Answer: Copy {
    /// That number.
    fn number(self) -> i64;
}

impl Answer for i32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl<T> Answer for NonNull<T> {
    fn number(self) -> i64 {
        self.as_ptr() as i64
    }
}

impl Mark {
    /// Reports the beginning of a call, if `NVGPU_SIM_TRACE` is set; `name` is that of the open file.
    pub(crate) fn begin(about: TraceMark, name: impl FnOnce() -> String) -> Self {
        static WANTED: OnceLock<bool> = OnceLock::new();
        let wanted =
            *WANTED.get_or_init(|| std::env::var_os(ga10b_sim::SimConfig::TRACE).is_some_and(|v| v == "1"));
        if wanted {
            let name = name();
            tell(TraceMark {
                name: name.as_ptr().expose_provenance() as u64,
                name_len: name.len() as u64,
                ..about
            });
        }
        Self(wanted)
    }

    /// Reports the result of the call, and returns it.
    pub(crate) fn end<T: Answer>(self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if self.0 {
            let result = answer.map_or_else(|errno| -i64::from(errno as i32), Answer::number);
            tell(TraceMark { kind: TraceMark::END, result, ..TraceMark::default() });
        }
        answer
    }
}

fn tell(mark: TraceMark) {
    // SAFETY: no kernel knows the option, so it reads nothing; a tracer reads the mark, which outlives the
    // call.
    unsafe { libc::syscall(libc::SYS_prctl, libc::c_ulong::from(TRACE_MARK), &raw const mark, 0, 0, 0) };
}
