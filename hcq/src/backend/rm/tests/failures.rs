//! Each call fails once: refused, interrupted by a signal, or served without an answer.

use super::*;
use nvgpu_sys::Layer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Nothing is done.
    Refused,
    /// Nothing is done yet.
    Interrupted,
    /// It is done, and the process does not learn it.
    AnswerLost,
}

/// The resource manager, with a call that fails.
#[derive(Debug)]
struct Failing {
    rm: Arc<FakeRm>,
    manner: Manner,
    at: usize,
    /// Calls so far, and the name of the one that failed.
    state: Mutex<(usize, Option<String>)>,
}

impl Failing {
    fn fails(&self, name: impl FnOnce() -> String) -> bool {
        let mut state = lock(&self.state);
        state.0 += 1;
        let fails = state.0 == self.at;
        if fails {
            state.1 = Some(name());
        }
        fails
    }
}

/// The object or mapping that a request creates, or removes.
fn subject(request: u32, arg: &mut [u8]) -> Option<u64> {
    match request & 0xff {
        0x29 => Some(view::<NVOS00_PARAMETERS>(arg).hObjectOld.into()),
        0x2b => Some(view::<NVOS64_PARAMETERS>(arg).hObjectNew.into()),
        0x4e => Some(view::<nv_ioctl_nvos33_parameters_with_fd>(arg).params_pLinearAddress),
        0x4f => Some(view::<NVOS34_PARAMETERS>(arg).pLinearAddress),
        0x57 => Some(view::<NVOS46_PARAMETERS>(arg).dmaOffset),
        0x58 => Some(view::<NVOS47_PARAMETERS>(arg).dmaOffset),
        _ => None,
    }
}

// SAFETY: every call is passed on to an implementation, or refused.
unsafe impl Layer for Failing {
    fn below(&self) -> &dyn Sys {
        &*self.rm
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        match self.manner {
            Manner::Refused if self.fails(|| "cannot open".to_owned()) => Err(Errno::EMFILE),
            Manner::Interrupted if self.fails(|| "cannot open".to_owned()) => Err(Errno::EINTR),
            _ => Sys::open(&*self.rm, path, flags),
        }
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        if !self.fails(|| format!("{request:#010x}")) {
            // SAFETY: passed on from the caller.
            return unsafe { self.rm.ioctl(fd, request, arg) };
        }
        let mut copy = arg.to_vec();
        let errno = match self.manner {
            Manner::Interrupted => return Err(Errno::EINTR),
            Manner::Refused => Errno::ENOMEM,
            Manner::AnswerLost => {
                // SAFETY: passed on from the caller.
                unsafe { self.rm.ioctl(fd, request, &mut copy) }?;
                Errno::EFAULT
            }
        };
        if let Some(subject) = subject(request, &mut copy) {
            lock(&self.rm.books).lost.insert(subject);
        }
        Err(errno)
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        if self.manner == Manner::Refused && self.fails(|| "cannot map".to_owned()) {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.rm.mmap(len, prot, flags, fd, offset) }
    }
}

/// Uses everything, gives it back, and asks for the fault and the time.
fn live_and_die(sys: Arc<dyn Sys>) -> Result<(), Error> {
    let device = use_everything(sys)?;
    device.gpu_time()?;
    let made = device.create_channel(&channel(Engine::Compute, 0x30_0000_0000))?;
    let memory = device.allocate(&memory(MemoryKind::Shared, 0x11_0000_0000))?;
    assert_eq!(device.fault(made.id).notifier, 0);
    device.destroy_channel(made.id);
    device.free(memory.id)
}

#[test]
fn each_call_may_fail_in_each_manner_and_nothing_is_left_behind() {
    let mut unnamed = Vec::new();
    for manner in [Manner::Refused, Manner::Interrupted, Manner::AnswerLost] {
        let mut errors = 0;
        for at in 1.. {
            let rm = FakeRm::new(Release::R580);
            let sys = Arc::new(Failing { rm: rm.clone(), manner, at, state: Mutex::default() });
            let outcome = live_and_die(sys.clone());
            let (calls, failed) = lock(&sys.state).clone();
            if let Err(error) = &outcome {
                let failed = failed.as_deref().unwrap_or("nothing");
                assert!(manner != Manner::Interrupted, "call {at}, {failed}: {error}");
                if !error.to_string().contains(failed) {
                    unnamed.push(format!("{manner:?} call {at}, {failed}: {error}"));
                }
                errors += 1;
            }
            rm.assert_empty();
            if calls < at {
                println!("{manner:?}: {calls} calls, {errors} errors");
                assert!(calls > 60 && (errors > 40 || manner == Manner::Interrupted), "{calls} {errors}");
                break;
            }
        }
    }
    assert!(unnamed.is_empty(), "errors that do not name the call:\n{}", unnamed.join("\n"));
}
