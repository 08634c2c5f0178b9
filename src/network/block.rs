//! What a network's pods cannot reach: from the settings to the rules.

use crate::datapath::{Block, BlockPorts, BlockTarget, PortRange};
use crate::settings::{self, BlockSettings};

use super::ports;

/// The list as the rules have it.
pub fn of(list: &[BlockSettings]) -> Vec<Block> {
    let one = |block: &BlockSettings| Block {
        to: match block.to {
            settings::BlockTarget::Node => BlockTarget::Node,
            settings::BlockTarget::Net(net) => BlockTarget::Net(net),
        },
        ports: match &block.ports {
            settings::BlockPorts::All => BlockPorts::All,
            settings::BlockPorts::Only(ranges) => BlockPorts::Only(ranges_of(ranges)),
            settings::BlockPorts::AllBut(ranges) => BlockPorts::AllBut(ranges_of(ranges)),
        },
    };
    list.iter().map(one).collect()
}

fn ranges_of(ranges: &[settings::PortRange]) -> Vec<PortRange> {
    let one = |range: &settings::PortRange| PortRange {
        protocol: ports::protocol(range.protocol),
        first: range.first,
        last: range.last,
    };
    ranges.iter().map(one).collect()
}
