//! Reading memory of processes, in a process that may hang.

use std::path::Path;

use crate::reader::{InspectedProcess, MAX_BYTES, ProcessRequest};
use gpuprobe_os::channel::Channel;
use gpuprobe_os::{memory, proc};

/// Reads processes until nobody asks any more.
pub(super) fn serve(channel: &Channel) {
    while let Ok(message) = channel.receive(false, &mut None) {
        let Ok(request) = serde_json::from_slice(&message.bytes) else {
            return;
        };
        if channel.send(&answer(&request), None).is_err() {
            return;
        }
    }
}

pub(super) fn answer(request: &ProcessRequest) -> Vec<u8> {
    match request {
        ProcessRequest::Facts {
            pid,
            variables,
            gpus,
        } => serde_json::to_vec(&facts(*pid, variables, gpus)).unwrap_or_default(),
        ProcessRequest::Memory {
            pid,
            address,
            size_bytes,
        } => {
            let mut buffer = [0; MAX_BYTES];
            let buffer = &mut buffer[..MAX_BYTES.min(*size_bytes)];
            memory::read(*pid, *address, buffer)
                .unwrap_or_default()
                .to_vec()
        }
    }
}

fn facts(pid: u32, variables: &[String], gpus: &[u32]) -> InspectedProcess {
    let has_node =
        |minor: &&u32| Path::new(&format!("/proc/{pid}/root/dev/nvidia{minor}")).exists();
    InspectedProcess {
        command_line: proc::command_line(pid).unwrap_or_default(),
        variables: proc::variables(pid, variables).unwrap_or_default(),
        gpus: gpus.iter().filter(has_node).copied().collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::reader::ProcessReader;

    #[test]
    fn own_memory_and_facts_are_read() {
        let reader = ProcessReader::default();
        let pid = std::process::id();
        let text = *b"here";
        let memory = reader.memory(pid);
        let mut buffer = [0; 4];
        let address = text.as_ptr().addr() as u64;
        assert_eq!(memory.read(address, &mut buffer), Some(&b"here"[..]));
        assert_eq!(memory.read(8, &mut buffer), None);
        assert_eq!(memory.read(address, &mut buffer), Some(&b"here"[..]));
        assert_eq!(reader.memory(u32::MAX).read(address, &mut buffer), None);
        let facts = reader.facts(pid, &["PATH", "NOT_SET"], &[250]);
        let path = std::env::var("PATH").unwrap().into_bytes();
        assert_eq!(facts.variables, [Some(path), None]);
        assert!(!facts.command_line.is_empty() && facts.gpus.is_empty());
        assert_eq!(
            reader.facts(u32::MAX, &["PATH"], &[]),
            InspectedProcess::default()
        );
    }
}
