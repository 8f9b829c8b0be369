//! Opening files at paths that lead through folders of others, where whoever serves them may never
//! answer: a process that may hang does that, with the rights of the user whose files they are. It
//! hands over only files that wait for nobody ([`gpuprobe_os::mounts`]).

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::link::ReaderProcess;
use super::{ReaderHost, ReaderKind};
use gpuprobe_os::privileges::User;

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
#[derive(Clone, Debug)]
pub struct Opener(Arc<Mutex<OpenerState>>);

#[derive(Debug)]
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
