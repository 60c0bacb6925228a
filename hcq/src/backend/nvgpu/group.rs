//! The channel group (TSG) of a device and the subcontext (VEID) that its channels run in.
//!
//! The driver gives a subcontext up when its last channel closes (`nvgpu_tsg_subctx_unbind_channel` in
//! `common/fifo/tsg_subctx.c`, r36.4.3), and refuses channels in one that is not reserved: it is reserved
//! again for the next.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

use nvgpu_sys::{
    Ioctl, NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC, Sys, nvgpu_gpu_open_tsg_args, nvgpu_tsg_bind_channel_ex_args,
    nvgpu_tsg_create_subcontext_args,
};

use super::handle::Handle;
use crate::error::{Error, with_causes};
use crate::profile::Subcontext;
use crate::sync::lock;

/// The subcontext that a group has without being asked.
const SYNC_VEID: u32 = 0;

/// A channel group.
#[derive(Debug)]
pub(super) struct Group {
    pub tsg: Handle,
    subcontext: Mutex<Reserved>,
}

/// The subcontext that channels run in.
#[derive(Debug)]
struct Reserved {
    /// The subcontext wanted; `None` for the asynchronous one, which others have run on an Orin.
    asked: Option<Subcontext>,
    /// Its number while it is reserved.
    veid: Option<u32>,
    /// Channels in it.
    members: usize,
}

impl Group {
    /// Opens a channel group.
    pub fn open(sys: &Arc<dyn Sys>, ctrl: &Handle) -> Result<Handle, Error> {
        let mut group = nvgpu_gpu_open_tsg_args::default();
        // SAFETY: the struct holds no addresses.
        unsafe { ctrl.send(&mut group) }?;
        Handle::from_answer(sys, nvgpu_gpu_open_tsg_args::NAME, group.tsg_fd.cast_signed())
    }

    /// Reserves the subcontext of an open group.
    pub fn new(tsg: Handle, address_space: &Handle, asked: Option<Subcontext>) -> Result<Arc<Self>, Error> {
        let mut reserved = Reserved { asked, veid: None, members: 0 };
        reserved.veid(&tsg, address_space)?;
        Ok(Arc::new(Self { tsg, subcontext: Mutex::new(reserved) }))
    }

    /// Binds a channel of the address space.
    pub fn bind(self: &Arc<Self>, channel: Handle, address_space: &Handle) -> Result<Member, Error> {
        let mut reserved = lock(&self.subcontext);
        let mut bind = nvgpu_tsg_bind_channel_ex_args {
            channel_fd: channel.raw(),
            subcontext_id: reserved.veid(&self.tsg, address_space)?,
            ..Default::default()
        };
        // SAFETY: the descriptor is the channel's, which is open.
        unsafe { self.tsg.send(&mut bind) }?;
        reserved.members += 1;
        Ok(Member { channel: ManuallyDrop::new(channel), group: self.clone() })
    }
}

impl Reserved {
    /// The subcontext's number. It is reserved unless it is; where the asynchronous one is refused and was not
    /// asked for, channels run in the one that each group has.
    fn veid(&mut self, tsg: &Handle, address_space: &Handle) -> Result<u32, Error> {
        if let Some(veid) = self.veid {
            return Ok(veid);
        }
        let veid = match self.asked {
            Some(Subcontext::Sync) => SYNC_VEID,
            _ => match create(tsg, address_space) {
                Err(error) if self.asked.is_none() && error.is_refusal() => {
                    tracing::warn!(
                        error = %with_causes(&error),
                        "the driver has no asynchronous subcontext: channels run in VEID 0, which nobody is \
                         known to have run on an Orin"
                    );
                    self.asked = Some(Subcontext::Sync);
                    SYNC_VEID
                }
                created => created?,
            },
        };
        self.veid = Some(veid);
        Ok(veid)
    }
}

/// Reserves an asynchronous subcontext; its number.
fn create(tsg: &Handle, address_space: &Handle) -> Result<u32, Error> {
    let mut args = nvgpu_tsg_create_subcontext_args {
        type_: NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC,
        as_fd: address_space.raw(),
        ..Default::default()
    };
    // SAFETY: the descriptor is the address space's, which is open.
    unsafe { tsg.send(&mut args) }?;
    Ok(args.veid)
}

/// A channel of a group, closed when this is dropped.
#[derive(Debug)]
pub(super) struct Member {
    channel: ManuallyDrop<Handle>,
    group: Arc<Group>,
}

impl Member {
    /// Sends a request to the channel.
    ///
    /// # Safety
    /// As for [`nvgpu_sys::call`].
    pub unsafe fn send<A: Ioctl>(&self, args: &mut A) -> Result<(), Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.channel.send(args) }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Held meanwhile: no channel is bound to a subcontext that the close gives up.
        let mut reserved = lock(&self.group.subcontext);
        // SAFETY: the member is going, so the handle is not used again.
        unsafe { ManuallyDrop::drop(&mut self.channel) };
        reserved.members -= 1;
        if reserved.members == 0 {
            reserved.veid = None;
        }
    }
}
