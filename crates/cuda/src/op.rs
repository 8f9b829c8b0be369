//! What is said of the operations of traced functions.

use crate::{MemoryKind, Modes, Op};

impl Op {
    /// Whether it is a memory call: of nested ones, the outermost is recorded.
    pub const fn is_memory(self) -> bool {
        let is_about_mappings = matches!(
            self,
            Self::HandleRetain
                | Self::Map
                | Self::MapHandle
                | Self::Unmap
                | Self::Reserve
                | Self::Unreserve
        );
        self.allocates() || self.frees() || is_about_mappings
    }

    /// Whether it allocates memory or a handle of memory.
    pub const fn allocates(self) -> bool {
        matches!(
            self,
            Self::Allocate | Self::HandleCreate | Self::HandleImport | Self::ShareOpen
        )
    }

    /// Whether it is a profiler hook of a framework's allocator.
    pub const fn is_of_framework(self) -> bool {
        matches!(self, Self::Tensor | Self::OutOfMemory | Self::BlockRequest)
    }

    /// Whether it frees memory or releases a reference to it.
    pub const fn frees(self) -> bool {
        matches!(self, Self::Free | Self::HandleRelease | Self::ShareClose)
    }

    /// Whether the ledger needs the call although it is not a memory call.
    pub const fn is_ledger_event(self) -> bool {
        self.makes_object()
            || matches!(
                self,
                Self::DeviceCount
                    | Self::GraphLaunch
                    | Self::CaptureEnd
                    | Self::ModuleUnload
                    | Self::ShareExport
                    | Self::Symbol
                    | Self::ContextDestroy
                    | Self::DeviceReset
                    | Self::PrimaryRelease
                    | Self::PoolDestroy
                    | Self::PoolTrim
                    | Self::PoolAttribute
                    | Self::PoolLimit
                    | Self::PoolOfDevice
                    | Self::PoolSet
                    | Self::GraphAllocate
                    | Self::GraphFree
                    | Self::GraphNode
                    | Self::GraphDestroy
                    | Self::HandleOther
                    | Self::ObjectDestroy
                    | Self::StreamDestroy
            )
    }

    /// Whether it makes an object with a handle of the kind of its function.
    pub const fn makes_object(self) -> bool {
        matches!(
            self,
            Self::ObjectCreate
                | Self::ContextCreate
                | Self::ContextRetain
                | Self::ModuleLoad
                | Self::LibraryLoad
                | Self::PoolCreate
                | Self::GraphBuild
        )
    }

    /// Whether it is a launch, which is counted in the kernel at entry.
    pub const fn is_launch(self) -> bool {
        matches!(self, Self::Launch | Self::GraphLaunch)
    }

    /// Whether it is a copy or memset.
    pub const fn is_copy(self) -> bool {
        matches!(self, Self::Copy | Self::CopyBatch)
    }

    /// Whether it only queries the current context or device. Frameworks call these very often.
    pub const fn is_device_query(self) -> bool {
        matches!(
            self,
            Self::ContextGet | Self::ContextDevice | Self::DeviceGet
        )
    }

    /// Whether it sets or reports the current device or context of a thread.
    pub const fn is_context_call(self) -> bool {
        self.is_device_query()
            || matches!(
                self,
                Self::ContextCreate
                    | Self::ContextRetain
                    | Self::ContextPart
                    | Self::ContextSet
                    | Self::ContextPush
                    | Self::ContextPop
                    | Self::DeviceSet
                    | Self::DeviceCount
            )
    }

    /// Whether it affects stream capture. Entry probe only.
    pub const fn is_capture_call(self) -> bool {
        matches!(
            self,
            Self::EventRecord | Self::StreamWait | Self::StreamDestroy
        )
    }

    /// Whether it names a process that it moves out of GPU memory or back, whoever calls it.
    pub const fn is_checkpoint(self) -> bool {
        matches!(self, Self::Checkpoint | Self::Restore)
    }

    /// Whether calls can be so frequent that only one layer is probed.
    pub const fn is_hot(self) -> bool {
        self.is_launch() || self.is_copy()
    }

    /// Whether `modes` need this operation on memory of this kind.
    pub const fn is_needed_by(self, modes: Modes, kind: MemoryKind) -> bool {
        if self.is_of_framework() {
            return modes.memleak;
        }
        if self.is_capture_call() {
            return modes.memleak || modes.cudatrace || modes.bandwidth_util;
        }
        let for_ledger = self.is_context_call() || self.is_memory() || self.is_ledger_event();
        if modes.memleak
            && (for_ledger || self.is_checkpoint() || matches!(self, Self::CaptureBegin))
        {
            return true;
        }
        match self {
            // The kind and device of memory determine the direction of copies.
            _ if self.is_context_call() => modes.bandwidth_util,
            Self::Allocate | Self::Free => modes.bandwidth_util && kind.has_place(),
            Self::Launch | Self::GraphLaunch | Self::KernelName | Self::ModuleUnload => {
                modes.cudatrace
            }
            Self::CaptureBegin | Self::CaptureEnd => modes.cudatrace || modes.bandwidth_util,
            Self::Copy | Self::CopyBatch => modes.bandwidth_util,
            _ => false,
        }
    }
}
