//! Every engine against every case of the suite.

mod contenders;

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure_testkit::suite::main(contenders::CONTENDERS)
}
