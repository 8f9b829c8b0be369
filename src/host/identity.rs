//! Identity of a process: user, command, container, cgroup, and the GPUs behind its CUDA devices.

mod cgroups;

use std::collections::HashMap;
use std::path::Path;

use nix::unistd::User;
use procfs::{FromBufRead, ProcessCGroup, ProcessCGroups};

use super::gpus;
use super::nvml::{Gpu, Nvml};
use gpuprobe_model::container::container_in;
use gpuprobe_model::event::{MAX_DEVICES, Task};
use gpuprobe_model::identity::DeviceIdentity;
use gpuprobe_model::identity::Identity;
use gpuprobe_os::proc;
use gpuprobe_stacks::helper::ProcessReader;

/// Variables of the environment that choose GPUs.
const VARIABLES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"];

/// The identity of process `task`, as far as known. The process may have ended.
pub fn of(
    task: &Task,
    nvml: Option<&Nvml>,
    users: &mut Users,
    processes: &ProcessReader,
) -> Identity {
    let pid = task.pid;
    let cgroup = cgroup(pid).or_else(|| cgroups::path_of(task.cgroup));
    let all_gpus = nvml.map_or(&[][..], |nvml| &nvml.gpus);
    let minors: Vec<_> = all_gpus.iter().filter_map(|gpu| gpu.minor).collect();
    let facts = processes.facts(pid, &VARIABLES, &minors);
    let variable = |name: &str| {
        let index = VARIABLES.iter().position(|known| *known == name)?;
        let value = facts.variables.get(index)?.as_ref()?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let visible = variable("CUDA_VISIBLE_DEVICES");
    let by_bus = variable("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    let devices = |nvml: &Nvml| {
        let gpus = reachable(&nvml.gpus, &facts.gpus);
        // By default CUDA orders the devices by speed, which is known only if all are of one model.
        let mut pairs = gpus.windows(2);
        let in_order = by_bus || pairs.all(|pair| pair[0].name == pair[1].name);
        let parent_of = |uuid: &str| nvml.parent_of(uuid);
        choose(&gpus, visible.as_deref(), in_order, parent_of)
    };
    Identity {
        user: users.name(task.uid),
        command: command(&facts.command_line),
        single_gpu: gpus::is_single(visible.as_deref()),
        container_pid: Some(task.inner_pid).filter(|&inner| inner != 0 && inner != pid),
        container: cgroup.as_deref().and_then(container_in).map(str::to_owned),
        cgroup,
        devices: nvml.map_or(Vec::new(), devices),
    }
}

/// User names by uid, cached: a lookup may use the network.
#[derive(Debug, Default)]
pub struct Users(HashMap<u32, Option<String>>);

impl Users {
    /// The name of user `uid` on this host, if there is one.
    pub fn name(&mut self, uid: u32) -> Option<String> {
        let ask = || Some(User::from_uid(uid.into()).ok()??.name);
        self.0.entry(uid).or_insert_with(ask).clone()
    }
}

/// Maximum number of characters of a command line.
const MAX_COMMAND: usize = 256;

/// A command line of these words, each terminated by a zero byte; `None` if there are none: the process has
/// ended.
fn command(bytes: &[u8]) -> Option<String> {
    let words = bytes
        .split(|&byte| byte == 0)
        .filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let line = words.join(" ").chars().take(MAX_COMMAND).collect();
    Some(line).filter(|line: &String| !line.is_empty())
}

/// The path of the process's cgroup of version 2, or of its memory controller with version 1.
fn cgroup(pid: u32) -> Option<String> {
    cgroup_in(&proc::short(pid, "cgroup").ok()?)
}

/// The same for the text of `/proc/PID/cgroup`.
fn cgroup_in(lines: &str) -> Option<String> {
    let groups = ProcessCGroups::from_buf_read(lines.as_bytes()).ok()?.0;
    let path_where = |is_wanted: fn(&&ProcessCGroup) -> bool| {
        let group = groups.iter().find(is_wanted);
        group.map(|group| &group.pathname)
    };
    let unified = path_where(|group| group.hierarchy == 0);
    let of_memory = path_where(|group| group.controllers.iter().any(|c| c == "memory"));
    let inner = unified.filter(|path| *path != "/");
    inner.or(of_memory).or(unified).cloned()
}

/// Maximum length of a device name: `MIG-GPU-`, a UUID, and two numbers.
const MAX_NAME: usize = 96;

/// The GPUs with device nodes in the process's root: a container may have some only.
fn reachable(gpus: &[Gpu], minors: &[u32]) -> Vec<Gpu> {
    let is_there = |gpu: &&Gpu| gpu.minor.is_some_and(|minor| minors.contains(&minor));
    let some: Vec<_> = gpus.iter().filter(is_there).cloned().collect();
    if some.is_empty() { gpus.to_vec() } else { some }
}

/// Applies `CUDA_VISIBLE_DEVICES`: indices or beginnings of UUIDs, up to the first invalid one.
fn choose(
    gpus: &[Gpu],
    visible: Option<&str>,
    in_order: bool,
    parent_of: impl Fn(&str) -> Option<u32>,
) -> Vec<DeviceIdentity> {
    let known = |gpu: &Gpu| DeviceIdentity {
        physical_index: Some(gpu.index),
        uuid: Some(gpu.uuid.clone()),
    };
    let by_index = |index: usize| match gpus.get(index)? {
        gpu if in_order => Some(known(gpu)),
        _ => Some(DeviceIdentity::default()),
    };
    let Some(visible) = visible else {
        return (0..gpus.len()).filter_map(by_index).collect();
    };
    let device = |word: &str| {
        let word = word.trim();
        if let Ok(index) = word.parse() {
            by_index(index)
        } else if word.len() > MAX_NAME {
            None
        } else if word.starts_with("MIG-") {
            Some(DeviceIdentity {
                physical_index: parent_of(word),
                uuid: Some(word.to_owned()),
            })
        } else {
            let named = |gpu: &&Gpu| word.len() > 4 && gpu.uuid.starts_with(word);
            gpus.iter().find(named).map(known)
        }
    };
    let words = visible.split(',').take(usize::from(MAX_DEVICES));
    words.map_while(device).collect()
}

/// Mount point of the cgroup hierarchies: the one of version 2, or a folder for each.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Whether `cgroup` is `path` or below it; `path` may include the mount point.
pub fn is_within(cgroup: &str, path: &str) -> bool {
    let below = |path: &str| {
        let path = Path::new("/").join(path.trim_matches('/'));
        Path::new(cgroup).starts_with(path)
    };
    match path.strip_prefix(CGROUPS) {
        None => below(path),
        Some(path) => {
            let hierarchy = path.trim_matches('/').split_once('/');
            below(path) || hierarchy.is_some_and(|(_, path)| below(path))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_a_process_prefers_version_2() {
        let of = |lines| cgroup_in(lines);
        assert_eq!(of("0::/a:b\n").unwrap(), "/a:b");
        assert_eq!(
            of("4:cpu,memory:/m\n1:name=systemd:/s\n0::/\n").unwrap(),
            "/m"
        );
        assert_eq!(of("4:memory:/m\n0::/u\n").unwrap(), "/u");
        assert_eq!(of("1:cpu:/c\n0::/\n").unwrap(), "/");
        assert_eq!(of("1:cpu:/c\n"), None);
    }

    #[test]
    fn is_within_accepts_all_forms_of_a_path() {
        assert!(is_within("/a/b", "/a"));
        assert!(is_within("/a", "a/"));
        assert!(is_within("/a/b", "/sys/fs/cgroup/a"));
        assert!(is_within("/a", "/"));
        assert!(is_within("/a", "/sys/fs/cgroup"));
        assert!(is_within("/a/b", "/sys/fs/cgroup/unified/a"));
        assert!(is_within("/a/b", "/sys/fs/cgroup/memory/a/b/"));
        assert!(!is_within("/a/b", "/sys/fs/cgroup/memory/b"));
        assert!(!is_within("/ab", "/a"));
        assert!(!is_within("/a", "/a/b"));
    }

    fn gpu(index: u32, name: &str) -> Gpu {
        Gpu {
            index,
            uuid: format!("GPU-{index}{index}{index}{index}"),
            name: name.to_owned(),
            minor: Some(index),
        }
    }

    fn chosen(gpus: &[Gpu], visible: Option<&str>, in_order: bool) -> Vec<Option<u32>> {
        let devices = choose(gpus, visible, in_order, |_| Some(9));
        devices.iter().map(|d| d.physical_index).collect()
    }

    #[test]
    fn visible_devices_are_renumbered() {
        let gpus = [gpu(0, "A"), gpu(1, "A"), gpu(2, "A")];
        assert_eq!(chosen(&gpus, None, true), [Some(0), Some(1), Some(2)]);
        assert_eq!(chosen(&gpus, Some("2,0"), true), [Some(2), Some(0)]);
        assert_eq!(chosen(&gpus, Some("1,-1,0"), true), [Some(1)]);
        assert_eq!(chosen(&gpus, Some("GPU-22,1"), true), [Some(2), Some(1)]);
        assert_eq!(chosen(&gpus, Some("MIG-x"), true), [Some(9)]);
        assert_eq!(chosen(&gpus, Some(""), true), []);
        // Limited, however often they are named.
        let many = ["MIG-x"; 20_000].join(",");
        let most = usize::from(MAX_DEVICES);
        assert_eq!(chosen(&gpus, Some(&many), true).len(), most);
        // The order is unknown, but a UUID names its GPU.
        assert_eq!(chosen(&gpus, Some("0,GPU-1"), false), [None, Some(1)]);
    }
}
