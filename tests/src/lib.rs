//! The device suite: the same tests on the software ga10b, a Jetson, and desktop GPUs.
