//! Opening files at paths that lead through folders of others, where whoever serves them may never
//! answer: a process that may hang does that, with the rights of the user whose files they are. It
//! hands over only files that wait for nobody ([`gpuprobe_os::mounts`]).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::link::ReaderProcess;
use super::{ReaderHost, ReaderKind};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::privileges::{self, Capability, User};
use gpuprobe_os::proc::Status;
use gpuprobe_os::regular::{
    open_own_in_root, open_regular, open_regular_beneath, open_regular_in_root,
};

/// A file that is wanted. It is opened only if it is a regular one.
#[derive(Debug, Serialize, Deserialize)]
pub enum Wanted {
    /// The map that process `pid` has written for `perf`.
    PerfMap(u32),
    /// At a path of ours, or in the root of a process, if one is named, which user may read.
    At(Vec<u8>, Option<u32>, u32),
    /// At a path below the folder that comes with this, of a process, as a user of certain groups.
    Below(Vec<u8>, u32, UserOf),
}

/// A [`User`], as it is sent.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserOf {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl From<&User> for UserOf {
    fn from(user: &User) -> Self {
        Self {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
        }
    }
}

impl From<UserOf> for User {
    fn from(user: UserOf) -> Self {
        Self {
            uid: user.uid,
            gid: user.gid,
            groups: user.groups,
        }
    }
}

/// Opens files, by way of a process that may hang.
#[derive(Clone, Debug, Default)]
pub struct Opener(Arc<Mutex<OpenerState>>);

#[derive(Debug, Default)]
struct OpenerState {
    place: ReaderHost,
    link: Option<ReaderProcess>,
}

impl Opener {
    /// Starts one. Where that fails, it is tried again for each file.
    pub fn new(place: ReaderHost) -> Self {
        let link = ReaderProcess::start(ReaderKind::Opener, place).ok();
        Self(Arc::new(Mutex::new(OpenerState { place, link })))
    }

    /// The file, if it could be opened in time. One below a folder comes with that.
    pub fn open(&self, wanted: &Wanted, folder: Option<&File>) -> Option<File> {
        let bytes = serde_json::to_vec(wanted).ok()?;
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = inner.place;
        if inner.link.is_none() {
            inner.link = ReaderProcess::start(ReaderKind::Opener, place).ok();
        }
        let opened = inner.link.as_mut()?.ask(&bytes, folder, true);
        if let Err(failure) = &opened {
            tracing::debug!("{wanted:?}: {failure:?}");
            inner.link = None;
        }
        opened.ok()?.file
    }
}

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
    let status = Status::of(pid)?;
    let ids = status.field("NSpid").unwrap_or_default();
    let own = ids.split_ascii_whitespace().next_back();
    let own = own.and_then(|own| own.parse().ok()).unwrap_or(pid);
    let path = format!("/tmp/perf-{own}.map");
    open_own_in_root(pid, Path::new(&path))
}
