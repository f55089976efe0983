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
    pub(super) fn new(packages: &Packages, cpus: usize, ran: MachineRun) -> Self {
        let mut json = ran.left.json;
        json["machine"] = json!({
            "qemu": ran.qemu,
            "accelerator": ran.accelerator,
            "emulated": ran.accelerator != "kvm",
            "kernel": packages.release,
            "kernel_package": packages.version,
            "cpus": cpus,
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

#[cfg(test)]
mod tests {
    use super::super::result::GuestResult;
    use super::*;
    use crate::environment::Environment;
    use crate::launch::LaunchReport;
    use crate::scratch::Scratch;

    #[test]
    fn the_report_fits_its_schema() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let image = scratch.path().join("image");
        std::fs::write(&image, "image").unwrap();
        let launches = LaunchReport {
            iterations: 1,
            load: "none".into(),
            valid: true,
            not_valid_because: Vec::new(),
            interrupted: false,
            command: vec!["cc1".into()],
            root: true,
            warm_ups: 0,
            seed: 1,
            repeat: Some("erofast lab kernel".into()),
            cold: "",
            environment: Environment::capture(&image, &image).unwrap(),
            load_seen: None,
            left_out: Vec::new(),
            engines: Vec::new(),
            notices: Vec::new(),
        };
        let left = GuestResult {
            valid: true,
            table: "table".into(),
            html: String::new(),
            json: serde_json::to_value(&launches).unwrap(),
        };
        let ran = MachineRun {
            left,
            qemu: "QEMU 10.0.2".into(),
            accelerator: "tcg",
        };
        let packages = Packages {
            release: "6.12".into(),
            version: "6.12-1".into(),
            kernel: "/vmlinuz".into(),
        };
        let report = KernelReport::new(&packages, 4, ran);
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        crate::schema::check("lab-kernel", &json);
        assert_eq!(
            (&json["machine"]["cpus"], &json["machine"]["emulated"]),
            (&4.into(), &true.into())
        );
        assert!(
            report
                .table()
                .starts_with("QEMU 10.0.2, an EMULATED machine")
        );
    }
}
