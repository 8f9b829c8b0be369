//! Kinds of objects that programs make and destroy by a handle.

crate::named! {
    /// Kind of an object with a handle. Each takes memory that no allocation shows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[allow(missing_docs)]
    pub enum HandleKind {
        Stream = "stream",
        Event = "event",
        Graph = "graph executable",
        Module = "module",
        Library = "library",
        Context = "context",
        /// Of a device; its handle is the device's index.
        PrimaryContext = "primary context",
        GreenContext = "green context",
        Pool = "memory pool",
        LogicalEndpoint = "logical endpoint",
        Blas = "cuBLAS handle",
        BlasLt = "cuBLASLt handle",
        Fft = "cuFFT plan",
        Dnn = "cuDNN handle",
        Sparse = "cuSPARSE handle",
        Solver = "cuSOLVER handle",
        Communicator = "NCCL communicator",
    }
}

impl HandleKind {
    /// What a call that makes one has done: `made`, and one that ends it: `destroyed`.
    pub const fn verbs(self) -> (&'static str, &'static str) {
        match self {
            Self::Module | Self::Library => ("loaded", "unloaded"),
            _ => ("made", "destroyed"),
        }
    }

    /// Whether programs make many while they warm up, and keep them: growth of memory beside these says nothing.
    pub const fn is_of_warm_up(self) -> bool {
        matches!(
            self,
            Self::Graph | Self::Module | Self::Library | Self::Pool
        )
    }

    /// The bits of a value that are the handle.
    pub const fn mask(self) -> u64 {
        match self {
            Self::Fft => 0xffff_ffff,
            _ => u64::MAX,
        }
    }

    /// Whether it ends with the context in which it was made.
    pub const fn ends_with_context(self) -> bool {
        matches!(self, Self::Stream | Self::Event | Self::Module)
    }
}
