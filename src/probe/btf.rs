//! The kernel's BTF, reduced to the types that the programs read: libbpf searches the whole of it for each of these.

use std::collections::{HashMap, HashSet};

use libbpf_rs::btf::{Btf, types::Struct};

/// Kinds of types in BTF (`BTF_KIND_*` of the kernel's include/uapi/linux/btf.h).
const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// `typedef`, `volatile`, `const`, `restrict` and tags of types: what they are of stands for them.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];

const MAGIC: u32 = 0x0001_eb9f;
/// Sizes of the header, of a type and of a member.
const HEADER: usize = 24;
const TYPE: usize = 12;
const MEMBER: usize = 12;
/// Bits of a type's `info`: the number of its members.
const COUNT: u32 = 0xffff;

/// The names of structures, and of members, in the BTF of the programs.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    structs: HashSet<Vec<u8>>,
    members: HashSet<Vec<u8>>,
}

impl Wanted {
    pub(super) fn of(programs: &Btf<'_>) -> Self {
        let mut wanted = Self::default();
        for of_programs in programs.type_by_kind::<Struct<'_>>() {
            let name = of_programs.name().unwrap_or_default().as_encoded_bytes();
            // What follows tells apart the versions of a type.
            let end = name.windows(3).position(|at| at == b"___");
            let name = &name[..end.unwrap_or(name.len())];
            if !name.is_empty() {
                wanted.structs.insert(name.to_vec());
            }
            let names = of_programs.iter().filter_map(|member| member.name);
            wanted
                .members
                .extend(names.map(|name| name.as_encoded_bytes().to_vec()));
        }
        wanted
    }
}

/// A type: its name, `info`, and size or type.
struct Type {
    at: usize,
    name: u32,
    info: u32,
    size: u32,
}

impl Type {
    fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// Size of what follows it; `None` if the kind is unknown.
    fn rest(&self) -> Option<usize> {
        let each = match self.kind() {
            INT | 14 | 17 => return Some(4),
            ARRAY => return Some(12),
            STRUCT | UNION | 15 | 19 => MEMBER,
            6 | 13 => 8,
            2..=18 => 0,
            _ => return None,
        };
        Some(each * (self.info & COUNT) as usize)
    }
}

/// The kernel's types, and those that are kept.
struct Reduction<'a> {
    wanted: &'a Wanted,
    /// The sections of the kernel's types and of their names.
    types: &'a [u8],
    names: &'a [u8],
    /// Where each type is.
    at: Vec<usize>,
    kept_types: Vec<u8>,
    kept_names: Vec<u8>,
    /// The new numbers of types.
    numbers: HashMap<u32, u32>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

/// The `wanted` structures of the kernel's BTF, with those of their members that are; `None` if it is not understood.
pub(super) fn reduced(kernel: &[u8], wanted: &Wanted) -> Option<Vec<u8>> {
    let header = word(kernel, 4)? as usize;
    let section = |at| {
        let begin = header + word(kernel, at)? as usize;
        kernel.get(begin..begin + word(kernel, at + 4)? as usize)
    };
    let mut all = Reduction {
        wanted,
        types: section(8)?,
        names: section(16)?,
        at: vec![0],
        kept_types: Vec::new(),
        kept_names: vec![0],
        numbers: HashMap::from([(0, 0)]),
    };
    let (mut at, mut roots) = (0, Vec::new());
    while at < all.types.len() {
        let found = all.type_at(at)?;
        if found.kind() == STRUCT && wanted.structs.contains(all.name(found.name)?) {
            roots.push(all.at.len() as u32);
        }
        all.at.push(at);
        at += TYPE + found.rest()?;
    }
    for root in roots {
        all.keep(root)?;
    }
    let sizes = [all.kept_types.len(), all.kept_names.len()].map(|size| size as u32);
    let header = [MAGIC, HEADER as u32, 0, sizes[0], sizes[0], sizes[1]];
    let mut bytes = header.map(u32::to_ne_bytes).concat();
    bytes.append(&mut all.kept_types);
    bytes.append(&mut all.kept_names);
    Some(bytes)
}

impl<'a> Reduction<'a> {
    fn type_at(&self, at: usize) -> Option<Type> {
        let [name, info, size] = [0, 4, 8].map(|field| word(self.types, at + field));
        Some(Type {
            at,
            name: name?,
            info: info?,
            size: size?,
        })
    }

    fn name(&self, at: u32) -> Option<&'a [u8]> {
        let name = self.names.get(at as usize..)?;
        name.split(|byte| *byte == 0).next()
    }

    fn keep_name(&mut self, at: u32) -> Option<u32> {
        let name = self.name(at)?;
        let kept = self.kept_names.len() as u32;
        self.kept_names.extend(name);
        self.kept_names.push(0);
        Some(if name.is_empty() { 0 } else { kept })
    }

    /// The type under an alias.
    fn resolved(&self, mut number: u32) -> Option<(u32, Type)> {
        loop {
            let found = self.type_at(*self.at.get(number as usize)?)?;
            // Number 0 is no type.
            if number == 0 || !ALIASES.contains(&found.kind()) {
                return Some((number, found));
            }
            number = found.size;
        }
    }

    /// Keeps a type, and returns its new number: 0 for what no program reads.
    fn keep(&mut self, number: u32) -> Option<u32> {
        let (number, found) = self.resolved(number)?;
        if let Some(known) = self.numbers.get(&number) {
            return Some(*known);
        }
        let (mut name, mut info, mut size) = (0, found.info, found.size);
        let rest = found.at + TYPE;
        let mut words = Vec::new();
        match found.kind() {
            INT => words.push(word(self.types, rest)?),
            PTR => size = 0,
            ARRAY => {
                let [of, by] = [rest, rest + 4].map(|at| word(self.types, at));
                words.extend([
                    self.keep(of?)?,
                    self.keep(by?)?,
                    word(self.types, rest + 8)?,
                ]);
            }
            STRUCT | UNION => {
                for index in 0..(info & COUNT) as usize {
                    let at = rest + index * MEMBER;
                    let [name, of, offset] = [0, 4, 8].map(|field| word(self.types, at + field));
                    let (name, of) = (name?, of?);
                    let is_kept = match name {
                        0 => matches!(self.resolved(of)?.1.kind(), STRUCT | UNION),
                        _ => self.wanted.members.contains(self.name(name)?),
                    };
                    if is_kept {
                        words.extend([self.keep_name(name)?, self.keep(of)?, offset?]);
                    }
                }
                name = self.keep_name(found.name)?;
                info = info & !COUNT | (words.len() / 3) as u32;
            }
            _ => return Some(0),
        }
        let new = self.numbers.values().max()? + 1;
        self.numbers.insert(number, new);
        for word in [name, info, size].into_iter().chain(words) {
            self.kept_types.extend(word.to_ne_bytes());
        }
        Some(new)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use libbpf_rs::btf::types::MemberAttr;

    use super::*;
    use crate::probe::KERNEL_BTF;

    fn wanted(structs: &[&str], members: &[&str]) -> Wanted {
        let set = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect();
        Wanted {
            structs: set(structs),
            members: set(members),
        }
    }

    #[test]
    fn members_that_are_kept_are_where_the_kernel_has_them() {
        let Ok(kernel) = std::fs::read(KERNEL_BTF) else {
            return;
        };
        let wanted = wanted(&["task_struct"], &["tgid", "comm", "thread", "mm"]);
        let bytes = reduced(&kernel, &wanted).unwrap();
        assert!(bytes.len() < 4096, "{}", bytes.len());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let members = |btf: &Btf<'_>| {
            let task = btf.type_by_name::<Struct<'_>>("task_struct").unwrap();
            let places = task.iter().filter_map(|member| {
                let MemberAttr::Normal { offset } = member.attr else {
                    return None;
                };
                let name = member.name?.to_str()?;
                wanted
                    .members
                    .contains(name.as_bytes())
                    .then(|| (name.to_owned(), offset))
            });
            places.collect::<Vec<_>>()
        };
        let kept = members(&Btf::from_path(file.path()).unwrap());
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert_eq!(kept, members(&Btf::from_vmlinux().unwrap()));
    }

    #[test]
    fn what_is_cut_off_is_not_understood() {
        let Ok(kernel) = std::fs::read(KERNEL_BTF) else {
            return;
        };
        for bytes in [0, 7, HEADER, kernel.len() / 2] {
            assert!(reduced(&kernel[..bytes], &wanted(&["task_struct"], &[])).is_none());
        }
    }
}
