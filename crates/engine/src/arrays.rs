//! Size of a CUDA array in bytes, computed from its descriptor. The driver may allocate more: its
//! memory layout of arrays is not documented.

use gpuprobe_cuda::Layer;

/// `CUDA_ARRAY3D_SPARSE` and `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped into the array
/// later, and counted by its own kind.
const WITHOUT_MEMORY: u64 = 0x40 | 0x80;
/// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of layers, the same at
/// each mipmap level.
const LAYERS: u64 = 1 | 4;

/// Size of the texels of an array: bits of a block, and texels of its width and height, which is 1 if they are not
/// compressed.
type Texels = (u64, u64);

/// Formats of compressed blocks of 4 by 4 texels with 8 and with 16 bytes, and of two planes with 12 bits for
/// each texel together (NV12).
const BLOCKS_OF_8: Texels = (64, 4);
const BLOCKS_OF_16: Texels = (128, 4);
const NV12: Texels = (12, 1);

/// Bytes of an array created by a call of `layer`, from the values that the probe sends; `None` of an
/// unknown format.
pub(super) fn of_layer(layer: Layer, values: &[u64; 8]) -> Option<u64> {
    if values[7] & WITHOUT_MEMORY != 0 {
        return Some(0);
    }
    let texels = match layer {
        Layer::Runtime => of_runtime(values),
        _ => of_driver(values),
    };
    Some(bytes(texels?, values))
}

/// Texels of an array created by a runtime call, from the values that the probe sends: bits of x and
/// y, bits of z and w (32 bits each), `cudaChannelFormatKind`, width, height, depth, levels, flags.
/// Width and height are in texels.
fn of_runtime(values: &[u64; 8]) -> Option<Texels> {
    let [xy, zw, kind, ..] = *values;
    let bits = [xy & 0xffff_ffff, xy >> 32, zw & 0xffff_ffff, zw >> 32];
    let bits = bits.iter().fold(0u64, |sum, &b| sum.saturating_add(b));
    Some(match kind {
        // cudaChannelFormatKindNV12: two planes, 12 bits per texel in both.
        4 => NV12,
        // cudaChannelFormatKindUnsignedBlockCompressed1, 1SRGB; 4 unsigned and signed.
        17 | 18 | 23 | 24 => BLOCKS_OF_8,
        // 2, 2SRGB, 3, 3SRGB; 5 and 6H unsigned and signed, 7, 7SRGB.
        19..=22 | 25..=30 => BLOCKS_OF_16,
        // All others whose texels have as many bits as their channels; 31 is 1010102, 33 is packed 4:4:4.
        0..=16 | 31 | 33 => (bits, 1),
        _ => return None,
    })
}

/// Texels of an array created by a driver call, from the values that the probe sends:
/// `CUarray_format`, channels, unused, then as in [`of_runtime`].
fn of_driver(values: &[u64; 8]) -> Option<Texels> {
    let [format, channels, ..] = *values;
    Some(match format {
        145 | 146 | 151 | 152 => BLOCKS_OF_8,
        147..=150 | 153..=158 => BLOCKS_OF_16,
        // Four channels packed into 32 bits.
        80 => (32, 1),
        // NV12 and other planar formats: 12 bits per texel in all planes.
        176 => NV12,
        1 | 8 | 192..=194 | 198..=200 => (channels.saturating_mul(8), 1),
        2 | 9 | 16 | 195..=197 | 201..=203 => (channels.saturating_mul(16), 1),
        3 | 10 | 32 => (channels.saturating_mul(32), 1),
        _ => return None,
    })
}

/// Bytes of all mipmap levels.
fn bytes((bits, block): Texels, values: &[u64; 8]) -> u64 {
    let [_, _, _, width, height, depth, levels, flags] = *values;
    let (height, depth) = (height.max(1), depth.max(1));
    let layered = flags & LAYERS != 0;
    let largest = width.max(height).max(if layered { 1 } else { depth });
    let levels = levels.clamp(1, u64::from(largest.max(1).ilog2()) + 1);
    let level = |level: u64| {
        let at = |extent: u64| (extent >> level).max(1);
        let layers = if layered { depth } else { at(depth) };
        let blocks = |extent: u64| at(extent).div_ceil(block);
        let blocks = blocks(width).saturating_mul(blocks(height));
        let plane = blocks.saturating_mul(bits).div_ceil(8);
        plane.saturating_mul(layers)
    };
    (0..levels).fold(0, |sum: u64, l| sum.saturating_add(level(l)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_runtime(values: &[u64; 8]) -> u64 {
        of_layer(Layer::Runtime, values).unwrap()
    }

    fn of_driver(values: &[u64; 8]) -> u64 {
        of_layer(Layer::Driver, values).unwrap()
    }

    #[test]
    fn plain_arrays() {
        // 1024 x 512 floats, in either description.
        assert_eq!(of_runtime(&[32, 0, 2, 1024, 512, 0, 0, 0]), 2 << 20);
        assert_eq!(of_driver(&[32, 1, 0, 1024, 512, 0, 0, 0]), 2 << 20);
        // One dimension, four half channels.
        assert_eq!(of_driver(&[16, 4, 0, 100, 0, 0, 0, 0]), 800);
        assert_eq!(
            of_runtime(&[16 << 32 | 16, 16 << 32 | 16, 2, 100, 0, 0, 0, 0]),
            800
        );
        // NV12, in either description.
        assert_eq!(of_runtime(&[8 << 32 | 8, 8, 4, 64, 32, 0, 0, 0]), 3072);
        assert_eq!(of_driver(&[176, 3, 0, 64, 32, 0, 0, 0]), 3072);
        // Three dimensions; a cube map of six faces.
        assert_eq!(of_driver(&[1, 2, 0, 8, 4, 2, 0, 0]), 128);
        assert_eq!(of_driver(&[32, 1, 0, 64, 64, 6, 0, 4]), 6 * 64 * 64 * 4);
    }

    #[test]
    fn the_size_of_an_unknown_format_is_unknown() {
        // Semi-planar 4:2:2, and formats that no release has.
        for format in [0xb1, 250] {
            assert_eq!(
                of_layer(Layer::Driver, &[format, 3, 0, 64, 32, 0, 0, 0]),
                None
            );
        }
        for kind in [36, 99] {
            assert_eq!(
                of_layer(Layer::Runtime, &[8 << 32 | 8, 8, kind, 64, 32, 0, 0, 0]),
                None
            );
        }
        // Packed: as many bits as channels have.
        assert_eq!(
            of_runtime(&[8 << 32 | 8, 8 << 32 | 8, 33, 64, 32, 0, 0, 0]),
            8192
        );
    }

    #[test]
    fn mipmaps_halve_the_depth_but_not_layers() {
        // 8x8, 4x4, 2x2, 1x1 bytes.
        assert_eq!(of_driver(&[1, 1, 0, 8, 8, 0, 4, 0]), 64 + 16 + 4 + 1);
        // More levels than exist count as all levels.
        assert_eq!(of_driver(&[1, 1, 0, 8, 8, 0, 99, 0]), 85);
        assert_eq!(of_driver(&[1, 1, 0, 8, 8, 3, 2, 1]), 3 * (64 + 16));
        assert_eq!(of_driver(&[1, 1, 0, 8, 8, 4, 2, 0]), 64 * 4 + 16 * 2);
    }

    #[test]
    fn block_compressed_and_sparse_arrays() {
        // BC1: 8 bytes for 4 by 4; BC7: 16.
        assert_eq!(of_driver(&[145, 4, 0, 10, 10, 0, 0, 0]), 9 * 8);
        assert_eq!(of_runtime(&[8, 0, 29, 8, 8, 0, 0, 0]), 4 * 16);
        assert_eq!(of_driver(&[32, 1, 0, 4096, 4096, 0, 0, 0x40]), 0);
        assert_eq!(of_driver(&[32, 1, 0, 4096, 4096, 0, 0, 0x80]), 0);
    }

    #[test]
    fn formats_have_their_sizes() {
        let runtime = |kind| of_runtime(&[16, 0, kind, 8, 8, 0, 0, 0]);
        for kind in [17, 18, 23, 24] {
            assert_eq!(runtime(kind), 4 * 8, "{kind}");
        }
        for kind in (19..=22).chain(25..=30) {
            assert_eq!(runtime(kind), 4 * 16, "{kind}");
        }
        assert_eq!((runtime(0), runtime(4), runtime(31)), (128, 96, 128));
        let driver = |format, channels| of_driver(&[format, channels, 0, 8, 8, 0, 0, 0]);
        for format in [145, 146, 151, 152] {
            assert_eq!(driver(format, 4), 4 * 8, "{format}");
        }
        for format in (147..=150).chain(153..=158) {
            assert_eq!(driver(format, 4), 4 * 16, "{format}");
        }
        for (bits, formats) in [
            (8, &[1, 8, 194, 200][..]),
            (16, &[2, 9, 16, 195, 197, 201, 203]),
            (32, &[3, 10, 32]),
        ] {
            for &format in formats {
                assert_eq!(driver(format, 2), 64 * 2 * bits / 8, "{format}");
            }
        }
        assert_eq!((driver(80, 2), driver(176, 4)), (64 * 4, 96));
    }

    #[test]
    fn invalid_descriptors_do_not_overflow() {
        let huge = [3, u64::MAX, 0, u64::MAX, u64::MAX, u64::MAX, u64::MAX, 0];
        assert!(of_driver(&huge) > 0);
        assert_eq!(of_runtime(&[u64::MAX; 8]), 0);
    }
}
