//! Opening files, in a process that may hang.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::reader::Wanted;
use gpuprobe_os::channel::Channel;
use gpuprobe_os::privileges::{self, Capability, User};
use gpuprobe_os::proc;
use gpuprobe_os::regular::{
    open_own_in_root, open_regular, open_regular_beneath, open_regular_in_root,
};

/// Opens files until nobody wants any more.
pub(super) fn serve(channel: &Channel) {
    while let Ok(message) = channel.receive(true, &mut None) {
        let wanted = serde_json::from_slice(&message.bytes).map_err(io::Error::from);
        let opened = wanted.and_then(|wanted| open(wanted, message.file.as_ref()));
        if channel.send(&[], opened.as_ref().ok()).is_err() {
            return;
        }
    }
}

fn open(wanted: Wanted, folder: Option<&File>) -> io::Result<File> {
    let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
    match wanted {
        Wanted::PerfMap(pid) => open_perf_map(pid),
        Wanted::At(path, root, uid) => {
            let path = Path::new(OsStr::from_bytes(&path));
            let user = User {
                uid,
                gid: uid,
                groups: Vec::new(),
            };
            let open = || match root {
                Some(pid) => open_regular_in_root(pid, path),
                None => open_regular(path),
            };
            // Without that right we may read no more than whoever started us.
            match privileges::has(Capability::CAP_SETUID) {
                true => user.act(open).ok_or_else(refused)?,
                false => open(),
            }
        }
        Wanted::Below(path, pid, user) => {
            let folder = folder.ok_or_else(refused)?;
            let path = Path::new(OsStr::from_bytes(&path));
            let open = || open_regular_beneath(folder, pid, path);
            User::from(user).act(open).ok_or_else(refused)?
        }
    }
}

/// The map that process `pid` has written, if there is one. The runtime knows itself by the id that
/// it has in its own namespace.
fn open_perf_map(pid: u32) -> io::Result<File> {
    let own = proc::inner_id(pid)?;
    let path = format!("/tmp/perf-{own}.map");
    open_own_in_root(pid, Path::new(&path))
}
