//! The user who ran gpuprobe through sudo or pkexec.

use std::env;
use std::ffi::{CString, OsString};
use std::sync::OnceLock;

use anyhow::Result;
use nix::unistd::{self, Gid, Uid, User};

/// The user who ran gpuprobe through sudo or pkexec.
#[derive(Clone, Debug)]
pub struct Invoker {
    /// User id of the invoker.
    pub uid: Uid,
    /// Primary group id of the invoker.
    pub gid: Gid,
    /// All groups of the invoker; GPU device files are often accessible to one of them.
    pub groups: Vec<Gid>,
    user: Option<User>,
}

impl Invoker {
    /// Finds the invoker from the variables that sudo and pkexec set; `None` if gpuprobe does not
    /// run as root through one of them.
    ///
    /// # Errors
    /// Returns the system's error if the user or its groups cannot be looked up.
    pub fn find() -> Result<Option<Self>> {
        let Some((uid, gid)) = ids() else {
            return Ok(None);
        };
        let user = User::from_uid(uid)?;
        let gid = gid
            .or_else(|| user.as_ref().map(|user| user.gid))
            .unwrap_or_else(|| Gid::from_raw(uid.as_raw()));
        let groups = match &user {
            Some(user) => unistd::getgrouplist(&CString::new(user.name.as_bytes())?, gid)?,
            None => vec![gid],
        };
        Ok(Some(Self {
            uid,
            gid,
            groups,
            user,
        }))
    }

    /// Variables that sudo has set to root's values, with the values for the user.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let (Some(user), Ok(Some(root))) = (&self.user, User::from_uid(Uid::from_raw(0))) else {
            return Vec::new();
        };
        let mail = |user: &User| OsString::from(format!("/var/mail/{}", user.name));
        let all: [(&str, OsString, OsString); 5] = [
            ("USER", (&root.name).into(), (&user.name).into()),
            ("LOGNAME", (&root.name).into(), (&user.name).into()),
            ("HOME", (&root.dir).into(), (&user.dir).into()),
            ("SHELL", (&root.shell).into(), (&user.shell).into()),
            ("MAIL", mail(&root), mail(user)),
        ];
        let is_roots = |(name, of_root, _): &(&str, OsString, OsString)| {
            env::var_os(name).is_some_and(|value| value == *of_root)
        };
        let changed = all.into_iter().filter(is_roots);
        changed.map(|(name, _, of_user)| (name, of_user)).collect()
    }
}

/// User and, if present, group.
fn ids() -> Option<(Uid, Option<Gid>)> {
    if !Uid::effective().is_root() {
        return None;
    }
    let id = |name| env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    let (uid, gid) = match id("SUDO_UID") {
        Some(uid) => (uid, id("SUDO_GID")),
        None => (id("PKEXEC_UID")?, None),
    };
    (uid != 0).then(|| (Uid::from_raw(uid), gid.map(Gid::from_raw)))
}

/// The user who ran gpuprobe through sudo or pkexec, as whom it writes files.
pub fn invoker() -> Option<&'static super::User> {
    static INVOKER: OnceLock<Option<super::User>> = OnceLock::new();
    let user = INVOKER.get_or_init(|| {
        let found = Invoker::find().map_err(|error| tracing::warn!("{error:#}"));
        let invoker = found.ok()??;
        Some(super::User {
            uid: invoker.uid.as_raw(),
            gid: invoker.gid.as_raw(),
            groups: invoker.groups.into_iter().map(Gid::as_raw).collect(),
        })
    });
    user.as_ref()
}
