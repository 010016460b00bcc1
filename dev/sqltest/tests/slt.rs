//! Every file under `files/` in every mode; see the crate's documentation.

fn main() {
    let arguments = libtest_mimic::Arguments::from_args();
    libtest_mimic::run(&arguments, thalweg_sqltest::run::trials()).exit();
}
