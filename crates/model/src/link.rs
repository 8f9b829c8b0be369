//! The PCI Express link between host and GPU.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Serialize, Serializer, ser::SerializeStruct};

const NVIDIA: &str = "0x10de";
/// PCI classes of GPUs: VGA and 3D controllers.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// Speed and width of a PCI Express link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PcieLink {
    /// Gigatransfers per second and lane (GT/s).
    pub gigatransfers: f64,
    /// Width of the link, lanes.
    pub lanes: u32,
}

impl PcieLink {
    /// Bandwidth in one direction after line coding, bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        // 8b/10b up to 5 GT/s, 128b/130b up to 32, then 242 of 256 bytes of a flit.
        let coding = match self.gigatransfers {
            g if g <= 5.0 => 8.0 / 10.0,
            g if g <= 32.0 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        self.gigatransfers * 1e9 / 8.0 * f64::from(self.lanes) * coding
    }

    /// Generation of PCI Express, for example `5.0`.
    pub fn generation(&self) -> &'static str {
        match self.gigatransfers {
            g if g <= 2.5 => "1.0",
            g if g <= 5.0 => "2.0",
            g if g <= 8.0 => "3.0",
            g if g <= 16.0 => "4.0",
            g if g <= 32.0 => "5.0",
            _ => "6.0",
        }
    }

    /// Reads the current link of the host's GPUs; `None` if there is no GPU or if the links differ.
    /// An idle GPU lowers its link speed, so the fastest speed seen under load counts.
    pub fn current() -> Option<Self> {
        // Servers have hundreds of other devices.
        static GPUS: OnceLock<Vec<PathBuf>> = OnceLock::new();
        let mut links = GPUS.get_or_init(gpus).iter().map(|gpu| Self::of(gpu));
        let first = links.next()??;
        links.all(|link| link == Some(first)).then_some(first)
    }

    fn of(device: &Path) -> Option<Self> {
        Self::parse(
            &read(device, "current_link_speed")?,
            &read(device, "current_link_width")?,
        )
    }

    /// Parses the text in sysfs, for example `32.0 GT/s PCIe` and `16`.
    fn parse(speed: &str, width: &str) -> Option<Self> {
        let gigatransfers = speed.split_whitespace().next()?.parse().ok()?;
        let lanes = width.trim().parse().ok()?;
        (gigatransfers > 0.0 && (1..=32).contains(&lanes)).then_some(Self {
            gigatransfers,
            lanes,
        })
    }
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PCIe {} x{}", self.generation(), self.lanes)
    }
}

impl Serialize for PcieLink {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut link = serializer.serialize_struct("Link", 3)?;
        link.serialize_field("pcie_generation", self.generation())?;
        link.serialize_field("lanes", &self.lanes)?;
        link.serialize_field("bytes_per_second", &self.bytes_per_second())?;
        link.end()
    }
}

fn read(device: &Path, name: &str) -> Option<String> {
    fs::read_to_string(device.join(name)).ok()
}

/// The GPUs among the PCI devices.
fn gpus() -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten();
    let paths = devices.flatten().map(|device| device.path());
    paths.filter(|path| is_gpu(path)).collect()
}

fn is_gpu(device: &Path) -> bool {
    let class = read(device, "class").unwrap_or_default();
    read(device, "vendor").is_some_and(|v| v.trim() == NVIDIA)
        && GPU_CLASSES.iter().any(|c| class.starts_with(c))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn links_are_parsed_from_sysfs() {
        let link = PcieLink::parse("32.0 GT/s PCIe\n", "16\n").unwrap();
        assert_eq!(link.to_string(), "PCIe 5.0 x16");
        assert!((link.bytes_per_second() - 63.015e9).abs() < 0.01e9);
        let old = PcieLink::parse("2.5 GT/s PCIe", "4").unwrap();
        assert_eq!(old.to_string(), "PCIe 1.0 x4");
        assert!((old.bytes_per_second() - 1e9).abs() < 1.0);
        assert_eq!(PcieLink::parse("Unknown", "16"), None);
        assert_eq!(PcieLink::parse("8.0 GT/s PCIe", "0"), None);
        assert_eq!(PcieLink::parse("8.0 GT/s PCIe", "255"), None);
    }
}
