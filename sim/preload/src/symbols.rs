//! `dlsym`, for programs that look the C library's functions up in its own handle, as Python's `ctypes` does.
//!
//! The loader's search finds the C library's function there, and this library's only in the search through all
//! libraries. So a search in a handle whose result is the C library's gets this library's instead; a function of
//! that name in another library stays what it is.

use crate::{descriptors, files, listings, mappings, requests, status, transfers};
use libc::{RTLD_LAZY, RTLD_NOLOAD, c_char, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The loader's `dlsym`, once [`prepare`] has run.
static LOADER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Every function that this library replaces.
macro_rules! replaced {
    ($($module:ident: $($name:ident)*;)*) => {
        [$($((concat!(stringify!($name), "\0"), $module::$name as *const () as *mut c_void),)*)*]
    };
}

fn replacement(name: &CStr) -> Option<*mut c_void> {
    let all = replaced! {
        descriptors: close dup2 dup3 close_range closefrom fcntl fcntl64 epoll_ctl;
        files: open open64 __open_2 __open64_2 openat openat64 __openat_2 __openat64_2;
        listings: opendir fdopendir readdir readdir64 closedir dirfd rewinddir telldir seekdir;
        mappings: mmap mmap64 munmap;
        requests: ioctl poll __poll_chk ppoll __ppoll_chk;
        status: stat stat64 lstat lstat64 fstat fstat64 fstatat fstatat64 statx
            __xstat __xstat64 __lxstat __lxstat64 __fxstat __fxstat64 __fxstatat __fxstatat64
            access eaccess euidaccess faccessat;
        transfers: read write pread pread64 pwrite pwrite64 readv writev vmsplice __read_chk __pread_chk __pread64_chk;
    };
    all.iter().find(|(known, _)| known.as_bytes() == name.to_bytes_with_nul()).map(|(_, function)| *function)
}

/// Finds the loader's `dlsym`.
extern "C" fn prepare() {
    // The versions of the symbol: of libraries since 2.34, and the first of each machine.
    let versions = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];
    // SAFETY: a search has no condition.
    let search =
        |version: &CStr| unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
    let Some(found) = versions.iter().map(|v| search(v)).find(|found| !found.is_null()) else {
        eprintln!("libnvgpu_sim.so: the C library has no dlsym of a known version");
        std::process::abort();
    };
    LOADER.store(found, Ordering::Release);
}

/// The loader's answer.
///
/// # Safety
/// As for `dlsym(3)`.
unsafe fn search(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let loader = LOADER.load(Ordering::Acquire);
    // SAFETY: the loader's function, which `prepare` has found, with the caller's arguments.
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(loader)(handle, name) }
}

/// The handle of the C library.
fn c_library() -> *mut c_void {
    // No lock, which a thread could hold when the process forks: threads that search at once find the same.
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let known = HANDLE.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the C library is loaded already.
    let found = unsafe { libc::dlopen(c"libc.so.6".as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
    HANDLE.store(found, Ordering::Release);
    found
}

/// `dlsym` of a library's handle.
///
/// # Safety
/// As for `dlsym(3)`.
unsafe extern "C" fn search_handle(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let found = unsafe { search(handle, name) };
    if found.is_null() || name.is_null() {
        return found;
    }
    // SAFETY: the loader has read the name.
    let Some(ours) = replacement(unsafe { CStr::from_ptr(name) }) else { return found };
    let c_library = c_library();
    // SAFETY: as above; the handle is the C library's.
    let is_original = !c_library.is_null() && unsafe { search(c_library, name) } == found;
    if is_original { ours } else { found }
}

/// `dlsym(3)`. Searches through all libraries and from the caller on go to the loader with the caller's own
/// return address, by which it knows where to begin; so the function is a jump and not a call.
///
/// # Safety
/// As for the C function.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "cmp qword ptr [rip + {loader}], 0",
        "jne 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {prepare}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        // RTLD_DEFAULT is 0 and RTLD_NEXT -1.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "ja {search_handle}",
        "jmp qword ptr [rip + {loader}]",
        loader = sym LOADER,
        prepare = sym prepare,
        search_handle = sym search_handle,
    )
}

/// `dlsym(3)`, as for x86-64.
///
/// # Safety
/// As for the C function.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "adrp x16, {loader}",
        "ldr x16, [x16, :lo12:{loader}]",
        "cbnz x16, 2f",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {prepare}",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "adrp x16, {loader}",
        "ldr x16, [x16, :lo12:{loader}]",
        "2:",
        // RTLD_DEFAULT is 0 and RTLD_NEXT -1.
        "add x17, x0, #1",
        "cmp x17, #1",
        "b.hi 3f",
        "br x16",
        "3:",
        "b {search_handle}",
        loader = sym LOADER,
        prepare = sym prepare,
        search_handle = sym search_handle,
    )
}

/// `dlsym(3)`, on other machines: searches from the caller on begin after this library.
///
/// # Safety
/// As for the C function.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    if LOADER.load(Ordering::Acquire).is_null() {
        prepare();
    }
    // SAFETY: the caller's promise.
    unsafe {
        if handle == libc::RTLD_DEFAULT || handle == libc::RTLD_NEXT {
            search(handle, name)
        } else {
            search_handle(handle, name)
        }
    }
}
