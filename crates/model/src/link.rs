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

    #[test]
    fn generations_have_their_speed_and_coding() {
        // Bytes per second of one lane.
        for (gigatransfers, generation, bytes_per_second) in [
            (2.5, "1.0", 250e6),
            (5.0, "2.0", 500e6),
            (8.0, "3.0", 984_615_385.0),
            (16.0, "4.0", 1_969_230_769.0),
            (32.0, "5.0", 3_938_461_538.0),
            (64.0, "6.0", 7_562_500_000.0),
        ] {
            let link = |lanes| PcieLink {
                gigatransfers,
                lanes,
            };
            assert_eq!(link(1).generation(), generation);
            for lanes in [1, 16] {
                let expected = bytes_per_second * f64::from(lanes);
                let found = link(lanes).bytes_per_second();
                assert!((found - expected).abs() < 100.0, "{found} {expected}");
            }
        }
        let link = PcieLink::parse("64.0 GT/s PCIe", "32").unwrap();
        let json = serde_json::to_value(link).unwrap();
        let expected = serde_json::json!({
            "pcie_generation": "6.0",
            "lanes": 32,
            "bytes_per_second": 242e9,
        });
        assert_eq!(json, expected);
        for (speed, width) in [("0.0 GT/s", "16"), ("-1.0 GT/s", "16"), ("8.0", "33")] {
            assert_eq!(PcieLink::parse(speed, width), None, "{speed} {width}");
        }
    }

    #[test]
    fn gpus_are_known_by_vendor_and_class() {
        let device = std::env::temp_dir().join(format!("gpuprobe-link-{}", std::process::id()));
        fs::create_dir_all(&device).unwrap();
        let write = |name: &str, text: &str| fs::write(device.join(name), text).unwrap();
        for (vendor, class, is_found) in [
            ("0x10de\n", "0x030200\n", true),
            ("0x10de\n", "0x030000\n", true),
            ("0x10de\n", "0x040300\n", false),
            ("0x8086\n", "0x030000\n", false),
        ] {
            write("vendor", vendor);
            write("class", class);
            assert_eq!(is_gpu(&device), is_found, "{vendor} {class}");
        }
        assert_eq!(PcieLink::of(&device), None);
        write("current_link_speed", "16.0 GT/s PCIe\n");
        write("current_link_width", "8\n");
        let link = PcieLink::of(&device).unwrap();
        assert_eq!(link.to_string(), "PCIe 4.0 x8");
        fs::remove_dir_all(&device).unwrap();
        assert!(!is_gpu(&device));
        assert!(gpus().iter().all(|gpu| is_gpu(gpu)));
    }
}
