//! linekeep beside what users would pick instead, and beside the floor that the machine sets.
//!
//! Every figure is one side of a ratio that was taken in one run on one file system. The contests are defined once and
//! driven twice: by criterion (`cargo bench`), and by the `peers` program, which lets the contestants take turns and
//! writes the table.

pub mod child;
pub mod contests;
pub mod counting;
pub mod crew;
pub mod floor;
pub mod stores;
