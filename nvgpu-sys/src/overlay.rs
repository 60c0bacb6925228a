//! Other readings of fields that the kernel headers declare as unions or bit-fields.
//!
//! The structs store a union as its first member that fills it. The others are read and written through the
//! methods here, named by their path in the kernel header (`condition.semaphore.payload` is
//! `condition_semaphore_payload`).

use zerocopy::IntoBytes as _;

use crate::bindings::*;

/// A field that shares its bytes with others: its struct, name, byte offset and size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// The struct, as the kernel headers spell it.
    pub container: &'static str,
    /// The path of the field, its parts joined with `_`.
    pub name: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

macro_rules! overlays {
    ($($container:ident { $($get:ident, $set:ident: $ty:ty = $at:literal),* $(,)? })*) => {
        $(
            $( const _: () = assert!($at + size_of::<$ty>() <= size_of::<$container>()); )*
            impl $container { $(
                #[doc = concat!("Reads the bytes at ", $at, " as `", stringify!($get), "`.")]
                pub fn $get(&self) -> $ty {
                    let mut value = <$ty>::default();
                    value.as_mut_bytes().copy_from_slice(&self.as_bytes()[$at..$at + size_of::<$ty>()]);
                    value
                }

                #[doc = concat!("Writes the bytes at ", $at, " as `", stringify!($get), "`.")]
                pub fn $set(&mut self, value: $ty) {
                    self.as_mut_bytes()[$at..$at + size_of::<$ty>()].copy_from_slice(value.as_bytes());
                }
            )* }
        )*

        /// Every field that is reached through a method because others share its bytes.
        pub const OVERLAYS: &[Overlay] = &[ $( $( Overlay {
            container: stringify!($container),
            name: stringify!($get),
            offset: $at,
            size: size_of::<$ty>(),
        }, )* )* ];
    };
}

overlays! {
    nvgpu_gpu_prepare_compressible_read_args {
        valid_compbits, set_valid_compbits: u32 = 4,
        fence_fd, set_fence_fd: i32 = 48,
    }
    nvgpu_gpu_open_channel_args {
        in_runlist_id, set_in_runlist_id: i32 = 0,
        out_channel_fd, set_out_channel_fd: i32 = 0,
    }
    nvgpu_gpu_get_buffer_info_args {
        in_dmabuf_fd, set_in_dmabuf_fd: i32 = 0,
        in_metadata_size, set_in_metadata_size: u32 = 4,
        in_metadata_addr, set_in_metadata_addr: u64 = 8,
    }
    nvgpu_gpu_alloc_vidmem_args {
        out_dmabuf_fd, set_out_dmabuf_fd: i32 = 0,
    }
    nvgpu32_as_alloc_space_args {
        o_a_offset, set_o_a_offset: u64 = 16,
        o_a_align, set_o_a_align: u64 = 16,
    }
    nvgpu_as_alloc_space_args {
        o_a_offset, set_o_a_offset: u64 = 16,
        o_a_align, set_o_a_align: u64 = 16,
    }
    nvgpu_as_map_buffer_compbits_args {
        mapping_iova_buf_addr, set_mapping_iova_buf_addr: u64 = 16,
    }
    nvgpu_channel_open_args {
        in_runlist_id, set_in_runlist_id: i32 = 0,
        out_channel_fd, set_out_channel_fd: i32 = 0,
    }
    nvgpu_wait_args {
        condition_semaphore_dmabuf_fd, set_condition_semaphore_dmabuf_fd: u32 = 8,
        condition_semaphore_offset, set_condition_semaphore_offset: u32 = 12,
        condition_semaphore_payload, set_condition_semaphore_payload: u32 = 16,
        condition_semaphore_padding, set_condition_semaphore_padding: u32 = 20,
    }
    nvmap_create_handle {
        fd, set_fd: i32 = 0,
        ivm_id, set_ivm_id: u64 = 0,
        ivm_handle, set_ivm_handle: u32 = 0,
        size64, set_size64: u64 = 0,
        handle64, set_handle64: u32 = 0,
    }
    nvmap_create_handle_from_va {
        handle, set_handle: u32 = 16,
    }
}

impl nvgpu_gpu_l2_fb_args {
    /// Bit of `flags`: write dirty lines of the L2 cache back.
    pub const L2_FLUSH: u8 = 1 << 0;
    /// Bit of `flags`: drop the lines of the L2 cache.
    pub const L2_INVALIDATE: u8 = 1 << 1;
    /// Bit of `flags`: flush the frame buffer interface.
    pub const FB_FLUSH: u8 = 1 << 2;
}
