//! Messages between the two sides of a visit, over a socket.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, UnixCredentials, getsockopt, recvmsg, sendmsg,
    setsockopt, sockopt,
};
use nix::sys::time::TimeVal;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most bytes that travel in one message.
pub(crate) const LIMIT: usize = 64 << 10;
/// Time that one side waits for the other, in seconds.
pub(crate) const PATIENCE: i64 = 10;

/// Kinds of messages.
pub(crate) mod kind {
    /// To the host: opens a node; the path follows.
    pub const OPEN: u32 = 1;
    /// To the host: asks for the name of the file of the descriptor that comes along.
    pub const NAME: u32 = 2;
    /// To the host: a request to the driver; the argument follows.
    pub const IOCTL: u32 = 3;
    /// To the visitor: `len` bytes at `address`, please.
    pub const READ: u32 = 4;
    /// To the visitor: put the bytes that follow at `address`.
    pub const WRITE: u32 = 5;
    /// To the visitor: the descriptor with this `number`, please.
    pub const DESCRIPTOR: u32 = 6;
    /// To either: the answer.
    pub const DONE: u32 = 7;
}

/// The head of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Head {
    pub(crate) kind: u32,
    /// A request or a descriptor.
    pub(crate) number: u32,
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Result of a call, negative for an errno.
    pub(crate) result: i64,
}

/// A message as it arrives.
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) content: Vec<u8>,
    pub(crate) fd: Option<OwnedFd>,
}

impl Message {
    pub(crate) fn result(&self) -> Result<i32, Errno> {
        match i32::try_from(self.head.result) {
            Ok(errno @ ..0) => Err(Errno::from_raw(-errno)),
            Ok(value) => Ok(value),
            Err(_) => Err(Errno::EPROTO),
        }
    }
}

pub(crate) fn answer(result: Result<i32, Errno>) -> Head {
    let result = result.map_or_else(|errno| -i64::from(errno as i32), i64::from);
    Head { kind: kind::DONE, result, ..Head::default() }
}

/// The name of a process's machine, in the namespace of sockets without files.
pub(crate) fn address(pid: u32) -> Result<UnixAddr, Errno> {
    UnixAddr::new_abstract(format!("nvgpu-sim.{pid}").as_bytes())
}

/// The process at the other end.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<UnixCredentials, Errno> {
    getsockopt(&socket, sockopt::PeerCredentials)
}

pub(crate) fn limit_waits(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let patience = TimeVal::new(PATIENCE, 0);
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience)?;
    setsockopt(&socket, sockopt::SendTimeout, &patience)
}

pub(crate) fn send(
    socket: BorrowedFd<'_>,
    head: Head,
    content: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    if content.len() > LIMIT {
        return Err(Errno::EMSGSIZE);
    }
    let fds: Vec<i32> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &[][..] } else { &rights[..] };
    let parts = [IoSlice::new(head.as_bytes()), IoSlice::new(content)];
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None).map(|_| ())
}

/// The next message; `None` when the other side is gone.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> Result<Option<Message>, Errno> {
    let mut head = Head::default();
    let mut content = vec![0; LIMIT];
    let mut control = nix::cmsg_space!([i32; 1]);
    let (len, fd) = {
        let mut parts = [IoSliceMut::new(head.as_mut_bytes()), IoSliceMut::new(&mut content)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let got = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let mut fd = None;
        for message in got.cmsgs()? {
            if let ControlMessageOwned::ScmRights(fds) = message {
                // SAFETY: the kernel made these descriptors for this message, and nothing else knows of them.
                let mut owned: Vec<_> =
                    fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect();
                fd = owned.pop();
            }
        }
        (got.bytes, fd)
    };
    if len == 0 {
        return Ok(None);
    }
    let len = len.checked_sub(size_of::<Head>()).ok_or(Errno::EPROTO)?;
    content.truncate(len);
    Ok(Some(Message { head, content, fd }))
}

/// Sends a message, and waits for the next one in return.
pub(crate) fn ask(
    socket: BorrowedFd<'_>,
    head: Head,
    content: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> Result<Message, Errno> {
    send(socket, head, content, fd)?;
    receive(socket)?.ok_or(Errno::ECONNRESET)
}

pub(crate) fn as_fd(fd: &Option<OwnedFd>) -> Result<BorrowedFd<'_>, Errno> {
    fd.as_ref().map(AsFd::as_fd).ok_or(Errno::EBADF)
}
