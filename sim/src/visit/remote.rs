//! The side of the visiting process.

use crate::caller::message::{
    Head, LIMIT, Message, address, answer, ask, kind, limit_waits, peer, receive, send,
};
use crate::caller::user_memory::UserMemory;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, ProtFlags};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, connect, socket};
use nvgpu_sys::Sys;
use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// The software ga10b of another process, seen from outside: serves the requests that a debugger sends with
/// copies of that process's descriptors (its address spaces' regions, its groups' SM records, debugger
/// sessions with its channels).
///
/// The other process must have opened its machine to visitors
/// ([`SimConfig::visible`](crate::SimConfig::visible), or `NVGPU_SIM_VISIBLE=1` with `libnvgpu_sim.so` and
/// `hcq`). What makes new objects or maps memory is refused: that is the process's own business.
#[derive(Debug)]
pub struct Remote {
    /// `None` once the machine has not answered in time.
    socket: Mutex<Option<OwnedFd>>,
    memory: UserMemory,
}

impl Remote {
    /// Finds the machine of a process.
    ///
    /// # Errors
    /// `ECONNREFUSED` when the process has none that visitors may see; `EACCES` when it is another user's;
    /// `ETIMEDOUT` when visitors before this one wait too, for ten seconds.
    pub fn connect(pid: u32) -> Result<Self, Errno> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        // Before the call, which waits where others do.
        limit_waits(socket.as_fd())?;
        connect(socket.as_raw_fd(), &address(pid)?).map_err(timed_out)?;
        // The peer reads memory of this process: it must be the process `pid` of the same user.
        let peer = peer(socket.as_fd())?;
        if peer.uid() != nix::unistd::geteuid().as_raw() || u32::try_from(peer.pid()) != Ok(pid) {
            return Err(Errno::EACCES);
        }
        Ok(Self { socket: Mutex::new(Some(socket)), memory: UserMemory::new()? })
    }

    /// Name of the inode of a descriptor of that machine, as `/proc/<pid>/fd` would show it on a real
    /// one; buffers are `/dmabuf:`. `None` for other files.
    ///
    /// # Errors
    /// `ETIMEDOUT` when the machine does not answer within ten seconds, and for all calls from then on;
    /// `ECONNRESET` or `EPIPE` when it is gone.
    pub fn descriptor_name(&self, fd: BorrowedFd<'_>) -> Result<Option<String>, Errno> {
        let answer = self.call(Head { kind: kind::NAME, ..Head::default() }, &[], Some(fd))?;
        match answer.result() {
            Err(Errno::ENOENT) => Ok(None),
            answered => answered.map(|_| String::from_utf8(answer.content).ok()),
        }
    }

    /// Sends a request and serves the machine's requests in return, until it answers.
    fn call(&self, head: Head, content: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<Message, Errno> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let open = socket.as_ref().ok_or(Errno::ETIMEDOUT)?;
        let answer = self.converse(open.as_fd(), head, content, fd).map_err(timed_out);
        if matches!(answer, Err(Errno::ETIMEDOUT)) {
            // A late answer would be taken for that of the next request, and each would wait as long.
            *socket = None;
        }
        answer
    }

    fn converse(
        &self,
        socket: BorrowedFd<'_>,
        head: Head,
        content: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<Message, Errno> {
        let mut message = ask(socket, head, content, fd)?;
        while message.head.kind != kind::DONE {
            self.give(socket, &message)?;
            message = receive(socket)?.ok_or(Errno::ECONNRESET)?;
        }
        Ok(message)
    }

    fn give(&self, socket: BorrowedFd<'_>, wanted: &Message) -> Result<(), Errno> {
        let Head { kind, number, address, len, .. } = wanted.head;
        match kind {
            kind::READ => {
                let len = usize::try_from(len).ok().filter(|len| *len <= LIMIT).ok_or(Errno::EPROTO)?;
                match self.memory.read(address, len) {
                    Ok(bytes) => send(socket, answer(Ok(0)), &bytes, None),
                    Err(errno) => send(socket, answer(Err(errno)), &[], None),
                }
            }
            kind::WRITE => {
                let done = self.memory.write(address, &wanted.content).map(|()| 0);
                send(socket, answer(done), &[], None)
            }
            kind::DESCRIPTOR => {
                let number = number.cast_signed();
                // SAFETY: the caller that made the request promised that descriptors in its argument are open.
                let fd = (number >= 0).then(|| unsafe { BorrowedFd::borrow_raw(number) });
                match send(socket, answer(Ok(0)), &[], fd) {
                    // It was not open.
                    Err(Errno::EBADF) => send(socket, answer(Err(Errno::EBADF)), &[], None),
                    sent => sent,
                }
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

/// The error of a wait that [`limit_waits`] has ended.
fn timed_out(errno: Errno) -> Errno {
    if errno == Errno::EAGAIN { Errno::ETIMEDOUT } else { errno }
}

// SAFETY: descriptors come from the kernel, over a socket; nothing is mapped.
unsafe impl Sys for Remote {
    fn open(&self, path: &CStr, _flags: OFlag) -> Result<OwnedFd, Errno> {
        let answer = self.call(Head { kind: kind::OPEN, ..Head::default() }, path.to_bytes(), None)?;
        answer.result()?;
        answer.fd.ok_or(Errno::EPROTO)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let head = Head { kind: kind::IOCTL, number: request, ..Head::default() };
        let answer = self.call(head, arg, Some(fd))?;
        if answer.content.len() != arg.len() {
            return Err(Errno::EPROTO);
        }
        arg.copy_from_slice(&answer.content);
        answer.result()
    }

    unsafe fn mmap(
        &self,
        _: NonZeroUsize,
        _: ProtFlags,
        _: MapFlags,
        _: BorrowedFd<'_>,
        _: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        Err(Errno::EPERM)
    }

    unsafe fn munmap(&self, _: NonNull<c_void>, _: usize) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        nix::poll::poll(fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        drop(fd);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;
    use crate::caller::message::PATIENCE;

    #[test]
    fn a_machine_that_does_not_answer_is_waited_for_once() {
        // Nobody takes visitors, and one alone may wait.
        let door = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(door.as_raw_fd(), &address(std::process::id()).unwrap()).unwrap();
        listen(&door, Backlog::new(0).unwrap()).unwrap();
        let began = Instant::now();
        let remote = Remote::connect(std::process::id()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(Remote::connect(std::process::id()).err(), Some(Errno::ETIMEDOUT));
            });
            for _ in 0..9 {
                assert_eq!(remote.descriptor_name(door.as_fd()), Err(Errno::ETIMEDOUT));
            }
            assert_eq!(remote.open(c"/dev/nvgpu/igpu0/dbg", OFlag::O_RDWR).err(), Some(Errno::ETIMEDOUT));
        });
        assert!(began.elapsed() < Duration::from_secs(2 * PATIENCE as u64), "{:?}", began.elapsed());
    }
}
