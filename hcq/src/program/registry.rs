//! The loaded programs of a device: what faults are explained by.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::core::Position;
use crate::program::image::Image;
use crate::sync::lock;

/// Programs that are loaded.
#[derive(Default)]
pub(crate) struct Registry {
    images: Mutex<Vec<Weak<Image>>>,
    /// Counts programs ever loaded: caches of code are dropped when it moves.
    generation: AtomicU64,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} programs", self.images().len())
    }
}

impl Registry {
    /// A program was loaded.
    pub fn add(&self, image: &Arc<Image>) {
        let mut images = lock(&self.images);
        images.retain(|image| image.strong_count() > 0);
        images.push(Arc::downgrade(image));
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Number of programs ever loaded.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The loaded programs.
    pub fn images(&self) -> Vec<Arc<Image>> {
        lock(&self.images).iter().filter_map(Weak::upgrade).collect()
    }

    /// The one whose code contains `pc`.
    pub fn image_at(&self, pc: u64) -> Option<Arc<Image>> {
        self.images().into_iter().find(|image| image.contains(pc))
    }

    /// The kernels named by submissions that had not ended at a position: program and number in it.
    pub fn in_flight(&self, at: Position) -> Vec<(Arc<Image>, usize)> {
        let next = at.completed.wrapping_add(1);
        let of = |image: Arc<Image>| {
            let kernels: Vec<_> = image.kernels_after(at.channel, next).collect();
            kernels.into_iter().map(move |i| (image.clone(), i))
        };
        self.images().into_iter().flat_map(of).collect()
    }
}
