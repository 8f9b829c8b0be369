//! A known call path in Rust: generics, a trait object, a closure, an inlined function.

#[cfg(not(allocates))]
use std::arch::asm;
use std::hint::black_box;

/// Allocates memory, for tests of a tracer.
#[cfg(allocates)]
#[inline(always)]
fn stop_now() {
    extern "C" {
        fn cudaMalloc(address: *mut *mut u8, bytes: usize) -> i32;
    }
    let mut address = std::ptr::null_mut();
    unsafe { cudaMalloc(&mut address, 4096) };
}

#[cfg(not(allocates))]
#[inline(always)]
fn stop_now() {
    let pid = std::process::id();
    unsafe {
        asm!("syscall", inlateout("rax") 62 => _, in("rdi") pid, in("rsi") 19,
             out("rcx") _, out("r11") _);
    }
}

trait Layer {
    fn forward(&self, depth: u64) -> u64;
}

struct Linear<T>(T);

impl<T: Copy + Into<u64>> Layer for Linear<T> {
    #[inline(never)]
    fn forward(&self, depth: u64) -> u64 {
        stop_now();
        black_box(depth + self.0.into())
    }
}

#[inline(always)]
fn through(layer: &dyn Layer, depth: u64) -> u64 {
    black_box(layer.forward(depth)) + 1
}

#[inline(never)]
fn train(layer: &dyn Layer) -> u64 {
    black_box(through(layer, 1)) + 1
}

#[inline(never)]
fn apply<F: Fn() -> u64>(function: F) -> u64 {
    black_box(function()) + 1
}

fn main() {
    let layer = Linear(3u32);
    black_box(apply(|| black_box(train(&layer)) + 1));
}
