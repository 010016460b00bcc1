//! Says so where the processor lacks what the program was compiled for, before anything else runs:
//! otherwise it would end with an illegal instruction, somewhere.
//!
//! `.cargo/config.toml` says which processors these are.

use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv, CpuidResult};

const MESSAGE: &[u8] =
    b"error: this build of thalweg needs a processor with AVX2, BMI2 and FMA (x86-64-v3)
hint: build it without them on this machine: RUSTFLAGS=\"\" make build
";

/// As for everything that the system refuses.
const EXIT_CODE: libc::c_int = 3;

/// Run by the loader, before all others that are.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static CHECK: extern "C" fn() = check;

extern "C" fn check() {
    if !suffices(&Leaves::of_this_processor()) {
        // SAFETY: bytes that are there, and an end that runs nothing more of the program.
        unsafe {
            libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(EXIT_CODE);
        }
    }
}

/// What `cpuid` tells of it, by leaf and register. Not `is_x86_feature_detected!`, which takes for
/// granted whatever the compiler was told.
struct Leaves {
    ecx_1: u32,
    ebx_7: u32,
    ecx_8000_0001: u32,
    /// Registers that the system saves, if it saves any.
    xcr0: u64,
}

const OSXSAVE: u32 = 1 << 27;

impl Leaves {
    fn of_this_processor() -> Leaves {
        let none = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
        let leaf = |first: u32, leaf: u32| match __cpuid(first).eax >= leaf {
            true => __cpuid_count(leaf, 0),
            false => none,
        };
        let ecx_1 = leaf(0, 1).ecx;
        // SAFETY: the instruction is there if the system has turned it on.
        let xcr0 = if ecx_1 & OSXSAVE == 0 { 0 } else { unsafe { _xgetbv(0) } };
        Leaves {
            ecx_1,
            ebx_7: leaf(0, 7).ebx,
            ecx_8000_0001: leaf(0x8000_0000, 0x8000_0001).ecx,
            xcr0,
        }
    }
}

/// x86-64-v3: what v2 has and AVX, AVX2, BMI1, BMI2, F16C, FMA, LZCNT and MOVBE.
fn suffices(leaves: &Leaves) -> bool {
    // SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C.
    const ECX_1: u32 = 1
        | 1 << 9
        | 1 << 12
        | 1 << 13
        | 1 << 19
        | 1 << 20
        | 1 << 22
        | 1 << 23
        | OSXSAVE
        | 1 << 28
        | 1 << 29;
    // BMI1, AVX2, BMI2.
    const EBX_7: u32 = 1 << 3 | 1 << 5 | 1 << 8;
    // LAHF, LZCNT.
    const ECX_8000_0001: u32 = 1 | 1 << 5;
    // Those of SSE and AVX.
    const XCR0: u64 = 0b110;
    leaves.ecx_1 & ECX_1 == ECX_1
        && leaves.ebx_7 & EBX_7 == EBX_7
        && leaves.ecx_8000_0001 & ECX_8000_0001 == ECX_8000_0001
        && leaves.xcr0 & XCR0 == XCR0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instruction_is_asked_for() {
        let all = || Leaves { ecx_1: !0, ebx_7: !0, ecx_8000_0001: !0, xcr0: !0 };
        assert!(suffices(&all()));
        for bit in [0, 9, 12, 13, 19, 20, 22, 23, 27, 28, 29] {
            assert!(!suffices(&Leaves { ecx_1: !(1 << bit), ..all() }), "{bit}");
        }
        for bit in [3, 5, 8] {
            assert!(!suffices(&Leaves { ebx_7: !(1 << bit), ..all() }), "{bit}");
        }
        for bit in [0, 5] {
            assert!(!suffices(&Leaves { ecx_8000_0001: !(1 << bit), ..all() }), "{bit}");
        }
        for bit in [1, 2] {
            assert!(!suffices(&Leaves { xcr0: !(1 << bit), ..all() }), "{bit}");
        }
    }

    #[test]
    fn the_one_that_runs_this_has_what_it_was_compiled_for() {
        assert!(suffices(&Leaves::of_this_processor()));
    }
}
