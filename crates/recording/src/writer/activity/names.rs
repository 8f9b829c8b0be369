//! Names of functions and kernels.

use std::collections::HashMap;
use std::sync::Arc;

use crate::writer::common::RowContext;
use gpuprobe_cuda::names::without_version;
use gpuprobe_model::activity::Activity;
use gpuprobe_stacks::symbols;
use gpuprobe_wire as wire;

/// `nameId`s of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionIds {
    /// CUPTI's name: `cudaMalloc_v3020`.
    pub(super) name: i64,
    /// Exported symbol: `cudaMalloc`.
    pub(super) plain: i64,
}

/// Functions by (domain, callback id).
#[derive(Debug, Default)]
pub(super) struct CuptiFunctionIds(HashMap<(u32, u32), (Arc<str>, FunctionIds)>);

impl CuptiFunctionIds {
    /// The function of a call.
    pub(super) fn of(
        &mut self,
        activity: &Activity,
        api: &wire::Api,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<FunctionIds> {
        let key = (api.domain, api.cbid);
        let name = activity.name.as_ref();
        if let Some((known, function)) = self.0.get(&key)
            && name.is_none_or(|name| **name == **known)
        {
            return Ok(*function);
        }
        let name = match name {
            Some(name) => Arc::clone(name),
            None => format!("[cbid {} of domain {}]", api.cbid, api.domain).into(),
        };
        let function = FunctionIds {
            name: common.string(&name)?,
            plain: common.string(without_version(&name))?,
        };
        self.0.insert(key, (name, function));
        Ok(function)
    }
}

/// `StringIds` of a kernel's names.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelNames {
    pub(super) demangled: i64,
    pub(super) short: i64,
    pub(super) mangled: Option<i64>,
}

/// Kernels by mangled name.
#[derive(Debug, Default)]
pub(super) struct CuptiKernelIds(HashMap<Arc<str>, KernelNames>);

impl CuptiKernelIds {
    /// The names of a kernel.
    pub(super) fn of(
        &mut self,
        mangled: Option<&Arc<str>>,
        common: &mut RowContext<'_>,
    ) -> rusqlite::Result<KernelNames> {
        let Some(mangled) = mangled else {
            let unknown = common.string("[unknown]")?;
            return Ok(KernelNames {
                demangled: unknown,
                short: unknown,
                mangled: None,
            });
        };
        if let Some(names) = self.0.get(mangled) {
            return Ok(*names);
        }
        let demangled = symbols::demangle(mangled);
        let names = KernelNames {
            demangled: common.string(&demangled)?,
            short: common.string(symbols::base_name(&demangled))?,
            mangled: Some(common.string(mangled)?),
        };
        self.0.insert(Arc::clone(mangled), names);
        Ok(names)
    }
}
