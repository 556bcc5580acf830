//! Working-set protection on traces: those that were recorded, and a machine in small that plays the demo.

#[cfg(test)]
mod cache;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod protector;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod trace;
