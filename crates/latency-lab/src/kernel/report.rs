//! The report of `lab kernel`.

use serde_json::json;

use super::machine::MachineRun;
use super::packages::Packages;

/// The launch experiment's report, as the machine wrote it, with a description of the machine.
#[derive(Debug, Clone)]
pub struct KernelReport {
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// "kvm" or "tcg", which is emulation.
    pub accelerator: String,
    table: String,
    html: String,
    json: serde_json::Value,
}

impl KernelReport {
    pub(super) fn new(packages: &Packages, ran: MachineRun) -> Self {
        let mut json = ran.left.json;
        json["machine"] = json!({
            "qemu": ran.qemu,
            "accelerator": ran.accelerator,
            "emulated": ran.accelerator != "kvm",
            "kernel": packages.release,
            "kernel_package": packages.version,
        });
        let how = match ran.accelerator {
            "kvm" => "a virtual machine with KVM: times compare with each other",
            _ => {
                "an EMULATED machine: times compare with each other only, never with those of a real one"
            }
        };
        KernelReport {
            valid: ran.left.valid,
            accelerator: ran.accelerator.into(),
            table: format!("{}, {how}\n{}", ran.qemu, ran.left.table),
            html: ran.left.html,
            json,
        }
    }

    /// The table that the patch printed.
    pub fn table(&self) -> String {
        self.table.clone()
    }

    /// One HTML file that needs no network.
    pub fn to_html(&self) -> String {
        self.html.clone()
    }

    /// As that of `lab launch`, with `machine` beside it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(&self.json).unwrap_or_default()
    }
}
