//! How much memory there is.

use std::fs;

/// The machine's memory, or the container's if that is less.
pub fn machine_memory_bytes() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let total = total.map_or(UNKNOWN, |kib| kib * 1024);
    let limit =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|t| t.trim().parse().ok());
    limit.map_or(total, |limit: u64| total.min(limit))
}
