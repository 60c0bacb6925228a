//! Allocations of more video memory than is free, and than there is.

use super::*;
use crate::error::MemoryError;
use crate::memory::manager::MemoryManager;
use crate::observer::Unobserved;

#[test]
fn an_error_says_how_much_memory_there_is() {
    let rm = FakeRm::new(Release::R580);
    let device: Arc<dyn Backend> = Arc::new(Rm::open(rm.clone(), Box::new(NoLog), PATIENCE).unwrap());
    assert_eq!(device.free_memory().unwrap(), 5 << 30);
    let memory = MemoryManager::new(device.clone(), Arc::new(Unobserved), true, 0);
    let error = |len, kind| memory.alloc(len, kind, "buffer").unwrap_err();
    let short = error(6 << 30, MemoryKind::Device);
    assert_eq!(short.to_string(), "cannot allocate 6 GiB for a buffer: 5 GiB of 141 GiB are free");
    assert!(short.hint().unwrap().starts_with("drop buffers"), "{short:?}");
    assert!(format!("{short:?}").contains("refused NV01_MEMORY_LOCAL_USER"), "{short:?}");
    // More than there is, and more than there are addresses.
    for len in [1 << 40, 1 << 56] {
        let never = error(len, MemoryKind::Device);
        assert!(matches!(never, Error::Memory(MemoryError::OutOfMemory { total: Some(_), .. })), "{never:?}");
        assert!(never.hint().unwrap().contains("never has so much"), "{never:?}");
    }
    let piece = memory.alloc(1 << 30, MemoryKind::Device, "buffer").unwrap();
    drop((piece, memory, device));
    rm.assert_empty();
}

#[test]
fn memory_in_several_stretches_does_where_there_is_no_single_one() {
    let rm = FakeRm::new(Release::R580);
    let device: Arc<dyn Backend> = Arc::new(Rm::open(rm.clone(), Box::new(NoLog), PATIENCE).unwrap());
    let memory = MemoryManager::new(device.clone(), Arc::new(Unobserved), true, 0);
    for (len, asked) in [(2 << 30, &[true][..]), (4 << 30, &[true, false])] {
        lock(&rm.books).contiguous.clear();
        drop(memory.alloc(len, MemoryKind::Device, "buffer").unwrap());
        assert_eq!(lock(&rm.books).contiguous, asked, "{len}");
    }
    drop((memory, device));
    rm.assert_empty();
}
