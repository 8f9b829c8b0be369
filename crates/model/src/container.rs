//! Containers and pods in the paths of cgroups: docker, containerd, CRI-O and Podman, of both cgroup
//! versions and both cgroup drivers of Kubernetes (systemd and cgroupfs).

/// Number of hexadecimal digits of a container id.
const ID_DIGITS: usize = 64;
/// Lengths of the parts of a UUID.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];
/// Number of hexadecimal digits of the uid of a static pod, which is a hash.
const HASH_DIGITS: usize = 32;

/// The container id in the path of a cgroup: 64 hexadecimal digits, which may have a prefix and a
/// suffix. Of nested containers, the innermost.
pub fn container_in(cgroup: &str) -> Option<&str> {
    let is_hex = |c: char| c.is_ascii_hexdigit();
    cgroup.rsplit('/').find_map(|name| {
        let mut words = name.split(|c| !is_hex(c));
        words.find(|word| word.len() == ID_DIGITS)
    })
}

/// The uid of the Kubernetes pod in the path of a cgroup, as the API server has it. The outermost is the
/// kubelet's; a pod may name cgroups inside of it as it likes.
pub fn pod_uid_in(cgroup: &str) -> Option<String> {
    let (_, pods) = cgroup.split_once("kubepods")?;
    pods.split("pod").skip(1).find_map(uid_at_start)
}

/// The uid that `text` begins with: a UUID, with `_` for `-` where systemd names the cgroup, or a hash.
fn uid_at_start(text: &str) -> Option<String> {
    let is_end = |c: char| !(c.is_ascii_hexdigit() || c == '-' || c == '_');
    let uid = text.split(is_end).next()?.replace('_', "-");
    let lengths: Vec<_> = uid.split('-').map(str::len).collect();
    (lengths == UUID_PARTS || lengths == [HASH_DIGITS]).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const UID: &str = "90d81341-92de-11e7-8cf2-507b9d4141fa";
    const BY_SYSTEMD: &str = "90d81341_92de_11e7_8cf2_507b9d4141fa";
    const STATIC: &str = "3d47b7b1b0a4b3b0a7a83a4bf7bd9a0c";

    #[test]
    fn containers_and_pods_are_found_in_cgroup_paths() {
        let slice = "/kubepods.slice/kubepods-burstable.slice";
        let nested = format!("/kubepods/pod{UID}/{ID}/kubepods/pod{STATIC}/x");
        for (path, container, pod) in [
            (format!("/system.slice/docker-{ID}.scope"), Some(ID), None),
            (format!("/docker/{ID}"), Some(ID), None),
            (format!("/docker/{ID}/init.scope"), Some(ID), None),
            (
                format!("/machine.slice/libpod-{ID}.scope/container"),
                Some(ID),
                None,
            ),
            (format!("/libpod_parent/libpod-{ID}"), Some(ID), None),
            (
                format!(
                    "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"
                ),
                Some(ID),
                None,
            ),
            (
                format!("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope"),
                Some(ID),
                None,
            ),
            (
                format!("/ecs/55091c13-b8cf-4801-b527-f4601742204d/{ID}"),
                Some(ID),
                None,
            ),
            (
                format!("/kubepods/besteffort/pod{UID}/{ID}"),
                Some(ID),
                Some(UID),
            ),
            (format!("/kubepods/pod{UID}/{ID}"), Some(ID), Some(UID)),
            (
                format!("/kubepods/burstable/pod{STATIC}/{ID}"),
                Some(ID),
                Some(STATIC),
            ),
            (
                format!("/kubepods/besteffort/pod{UID}/crio-{ID}"),
                Some(ID),
                Some(UID),
            ),
            (
                format!("{slice}/kubepods-burstable-pod{BY_SYSTEMD}.slice/docker-{ID}.scope"),
                Some(ID),
                Some(UID),
            ),
            (
                format!(
                    "{slice}/kubepods-burstable-pod{BY_SYSTEMD}.slice/cri-containerd-{ID}.scope"
                ),
                Some(ID),
                Some(UID),
            ),
            (
                format!(
                    "{slice}/kubepods-burstable-pod{BY_SYSTEMD}.slice/crio-{ID}.scope/container"
                ),
                Some(ID),
                Some(UID),
            ),
            (
                format!("/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{ID}.scope"),
                Some(ID),
                Some(STATIC),
            ),
            (
                format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{BY_SYSTEMD}.slice:cri-containerd:{ID}"
                ),
                Some(ID),
                Some(UID),
            ),
            (
                format!(
                    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/\
                     kubelet-kubepods-besteffort-pod{BY_SYSTEMD}.slice/cri-containerd-{ID}.scope"
                ),
                Some(ID),
                Some(UID),
            ),
            (
                format!("/docker/{ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}"),
                Some(ID),
                Some(UID),
            ),
            // What is in a pod does not say which pod it is.
            (nested, Some(ID), Some(UID)),
        ] {
            assert_eq!(container_in(&path), container, "{path}");
            assert_eq!(pod_uid_in(&path).as_deref(), pod, "{path}");
        }
    }

    #[test]
    fn other_cgroups_are_no_containers() {
        for path in [
            "",
            "/",
            "/user.slice/user-1000.slice/session-2.scope",
            "/system.slice/tripod.service",
            "/abcdef",
            "/kubepods",
            "/kubepods.slice/kubepods-besteffort.slice",
            "/kubepods/podinfo",
            "/kubepods/pod1234",
            "/pod90d81341-92de-11e7-8cf2-507b9d4141fa",
            "/kubepods/pod90d8134g-92de-11e7-8cf2-507b9d4141fa",
        ] {
            assert_eq!(container_in(path), None, "{path}");
            assert_eq!(pod_uid_in(path), None, "{path}");
        }
    }
}
