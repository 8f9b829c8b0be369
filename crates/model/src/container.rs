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
        #[rustfmt::skip]
        let paths = [
            ("/system.slice/docker-{ID}.scope", None),
            ("/docker/{ID}", None),
            ("/docker/{ID}/init.scope", None),
            ("/machine.slice/libpod-{ID}.scope/container", None),
            ("/libpod_parent/libpod-{ID}", None),
            ("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope", None),
            ("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope", None),
            ("/ecs/55091c13-b8cf-4801-b527-f4601742204d/{ID}", None),
            ("/kubepods/besteffort/pod{UID}/{ID}", Some(UID)),
            ("/kubepods/pod{UID}/{ID}", Some(UID)),
            ("/kubepods/burstable/pod{STATIC}/{ID}", Some(STATIC)),
            ("/kubepods/besteffort/pod{UID}/crio-{ID}", Some(UID)),
            ("{SLICE}-pod{SYSTEMD}.slice/docker-{ID}.scope", Some(UID)),
            ("{SLICE}-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope", Some(UID)),
            ("{SLICE}-pod{SYSTEMD}.slice/crio-{ID}.scope/container", Some(UID)),
            ("/kubepods.slice/kubepods-pod{STATIC}.slice/crio-{ID}.scope", Some(STATIC)),
            ("/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD}.slice:cri-containerd:{ID}", Some(UID)),
            ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod{SYSTEMD}.slice/cri-containerd-{ID}.scope", Some(UID)),
            ("/docker/{ID}/kubelet/kubepods/besteffort/pod{UID}/{ID}", Some(UID)),
            // What is in a pod does not say which pod it is.
            ("/kubepods/pod{UID}/{ID}/kubepods/pod{STATIC}/x", Some(UID)),
        ];
        for (path, pod) in paths {
            let path = path
                .replace(
                    "{SLICE}",
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable",
                )
                .replace("{ID}", ID)
                .replace("{UID}", UID)
                .replace("{SYSTEMD}", BY_SYSTEMD)
                .replace("{STATIC}", STATIC);
            assert_eq!(container_in(&path), Some(ID), "{path}");
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
