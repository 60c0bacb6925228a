//! ABI of the Tegra nvgpu and nvmap kernel drivers, and the one seam through which it is called.
