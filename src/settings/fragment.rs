//! Every option there is: its kind, its default, and what it is for. Owns the first of the three stages.
//!
//! A *fragment* is what one file says: everything optional, every value with its place in the file, nothing unknown
//! accepted. The list of options stands here once; from it the macro makes the fragment, the *input* that the
//! fragments are merged into (which begins as the defaults), and the list that `config show` prints.

use super::duration::Period;
use super::firewall::{Ports, Target, Zone};
use super::input::{Entry, Located, Section};
use super::value::{
    AbsolutePath, Address, BridgeName, ConfPath, Conflist, Count, DnsName, DnsOption, Exclude, Filter,
    Prefix, SocketPath, Subnet,
};
use super::{ForeignPolicy, RestartPolicy};
use crate::cni::{CniVersion, MacAddr, NetworkName};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use toml::Spanned;

/// A list; each element knows its place.
pub(super) type List<T> = Vec<Spanned<T>>;

/// What one file says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fragment {
    pub(super) paths: Option<Table<PathsFragment>>,
    pub(super) log: Option<Table<LogFragment>>,
    pub(super) limits: Option<Table<LimitsFragment>>,
    pub(super) server: Option<Table<ServerFragment>>,
    pub(super) bounds: Option<Table<BoundsFragment>>,
    #[serde(default)]
    pub(super) network: List<Table<NetworkFragment>>,
}

/// A table, and only a table: serde would also fill a struct from an array, field by field.
#[derive(Debug)]
pub(super) struct Table<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TableOnly(PhantomData))
    }
}

impl<T: Serialize> Serialize for Table<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

struct TableOnly<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TableOnly<T> {
    type Value = Table<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of options")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Table)
    }
}

/// Makes a fragment and an input of one list of options: `option: kind = default`, then `[table]: Fragment =>
/// Input` for the tables inside.
macro_rules! section {
    (
        $(#[$about:meta])*
        $fragment:ident => $input:ident {
            $($(#[$what:meta])* $option:ident: $kind:ty = $default:expr,)*
            $([$table:ident]: $inner_fragment:ident => $inner_input:ident,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $fragment {
            $($(#[$what])* pub(super) $option: Option<Spanned<$kind>>,)*
            $(pub(super) $table: Option<Table<$inner_fragment>>,)*
        }

        $(#[$about])*
        #[derive(Debug)]
        pub(super) struct $input {
            $($(#[$what])* pub(super) $option: Located<$kind>,)*
            $(pub(super) $table: $inner_input,)*
        }

        impl Default for $input {
            fn default() -> Self {
                Self {
                    $($option: Located::default_of($default),)*
                    $($table: $inner_input::default(),)*
                }
            }
        }

        impl $input {
            /// Takes over what the fragment says, key by key.
            pub(super) fn absorb(&mut self, fragment: $fragment, source: &Arc<super::files::Source>) {
                $(if let Some(value) = fragment.$option {
                    self.$option = Located::from_file(value, source);
                })*
                $(if let Some(Table(inner)) = fragment.$table {
                    self.$table.absorb(inner, source);
                })*
            }

            /// Adds every option with its value and origin to `list`.
            pub(super) fn entries(&self, section: &Section, list: &mut Vec<Entry>) {
                $(list.push(section.entry(stringify!($option), &self.$option));)*
                $(self.$table.entries(&section.table(stringify!($table)), list);)*
            }
        }
    };
}

section! {
    /// Where hostcni keeps what it needs.
    PathsFragment => PathsInput {
        /// The socket that the CNI plugin calls, if the conf is to name another than the socket unit's.
        socket: SocketPath = SocketPath("/run/hostcni/cni.sock".into()),
        /// Attachments; on a tmpfs, since they die with the kernel objects they describe.
        state_dir: AbsolutePath = AbsolutePath("/run/hostcni/attachments".into()),
        /// DELs that nobody could answer; on a disk.
        spool_dir: AbsolutePath = AbsolutePath("/var/lib/hostcni/spool".into()),
        /// Attachments that other plugins made, whose own records outlive a boot; on a disk.
        delegated_dir: AbsolutePath = AbsolutePath("/var/lib/hostcni/delegated".into()),
        /// Where a pod's namespace gets a name of hostcni's own, for plugins that take paths only.
        netns_dir: AbsolutePath = AbsolutePath("/run/hostcni/netns".into()),
    }
}

section! {
    /// What goes to the journal.
    LogFragment => LogInput {
        /// Least severity, for all or for each part.
        filter: Filter = Filter("info".into()),
    }
}

section! {
    /// What one client can take up.
    LimitsFragment => LimitsInput {
        /// Connections at a time; more wait in the socket.
        max_connections: Count<1, 65_535> = Count(1024),
        /// How long a client may be connected without a whole message.
        idle_timeout: Period<100, HOUR> = seconds(10),
    }
}

section! {
    /// The server's own work.
    ServerFragment => ServerInput {
        /// Threads that enter network namespaces.
        workers: Count<1, 64> = Count(3),
        /// How long a stop waits for requests that are being worked on.
        stop_timeout: Period<100, {10 * MINUTE}> = seconds(10),
    }
}

section! {
    /// How long a CNI call may take; carried by the conf, in whole seconds.
    BoundsFragment => BoundsInput {
        add: Bound = seconds(45),
        del: Bound = seconds(45),
        check: Bound = seconds(10),
        status: Bound = seconds(2),
        gc: Bound = seconds(30),
    }
}

section! {
    /// One network.
    NetworkFragment => NetworkInput {
        /// Its name, in the conf and in every attachment; also what joins the entries of several files.
        name: NetworkName = builtin_name(),
        /// What makes the network.
        driver: Driver = Driver::Bridge,
        /// The bridge.
        bridge: BridgeName = builtin_bridge(),
        /// The bridge's MAC address; made from the network's name when not set.
        mac: Option<MacAddr> = None,
        /// MTU of the bridge and of pods; the default route's link's, less `mtu_overhead`, when not set. RFC 791 asks
        /// for 68 at least; the kernel's limit for Ethernet devices is 65535.
        mtu: Option<Count<68, 65_535>> = None,
        /// Bytes that a tunnel around the pods' packets needs.
        mtu_overhead: Count<0, 8_000> = Count(0),
        /// The pods' addresses, the simple form.
        subnets: List<Subnet> = vec![Spanned::new(0..0, builtin_subnet())],
        /// The pods' addresses, the long form.
        range: List<Table<RangeFragment>> = Vec::new(),
        /// Replace pods' addresses by the node's on the way out of the network.
        masquerade: bool = true,
        /// Destinations that see pods' own addresses all the same.
        no_masquerade: List<Prefix> = Vec::new(),
        /// A pod may reach itself through a host port or a service.
        hairpin: bool = true,
        /// Pods of this network cannot reach each other over the bridge.
        isolated: bool = false,
        /// Pods send only from their own addresses.
        anti_spoofing: bool = true,
        /// Switch the node's IP forwarding on.
        forwarding: bool = true,
        /// Routes in pods beside the default route.
        route: List<Table<RouteFragment>> = Vec::new(),
        /// Destinations that pods cannot reach.
        block: List<Table<BlockFragment>> = Vec::new(),
        /// Have the network's packets accepted where another firewall drops what is forwarded.
        accept_forward: bool = false,
        /// The zone that the bridge is put into when firewalld runs.
        firewalld_zone: Zone = Zone::trusted(),
        [dns]: DnsFragment => DnsInput,
        [delegate]: DelegateFragment => DelegateInput,
        [conf]: ConfFragment => ConfInput,
    }
}

section! {
    /// Resolver settings that runtimes are told.
    DnsFragment => DnsInput {
        nameservers: List<Address> = Vec::new(),
        domain: Option<DnsName> = None,
        search: List<DnsName> = Vec::new(),
        options: List<DnsOption> = Vec::new(),
    }
}

section! {
    /// The chain of other CNI plugins that makes the network, for the driver `delegate`.
    DelegateFragment => DelegateInput {
        /// The network configuration list: its file, or its text.
        conflist: Option<Conflist> = None,
        /// Where the plugins are looked for, in this order.
        plugin_dirs: List<AbsolutePath> = plugin_dirs(),
        /// How long one call of one plugin may take; then it is killed with all that it started.
        timeout: Bound = seconds(30),
        [ready]: ReadyFragment => ReadyInput,
    }
}

section! {
    /// What has to be there for the chain to work: the conf exists only while it is.
    ReadyFragment => ReadyInput {
        /// Files that exist.
        files: List<AbsolutePath> = Vec::new(),
        /// Unix sockets that accept.
        sockets: List<SocketPath> = Vec::new(),
        /// The chain's own STATUS succeeds.
        status: bool = false,
        /// How long a start waits for it before it goes on without the conf.
        wait: Period<0, {10 * MINUTE}> = seconds(30),
        /// How long it may be gone before the conf goes.
        grace: Period<0, {10 * MINUTE}> = seconds(10),
    }
}

section! {
    /// The CNI network configuration file that announces the network.
    ConfFragment => ConfInput {
        /// Where; its ending says which form.
        path: ConfPath = ConfPath("/etc/cni/net.d/80-openshift-network.conf".into()),
        /// The version it is written for. Not the newest: older runtimes refuse a file with a version they do not know.
        cni_version: CniVersion = CniVersion::V1_0_0,
        /// What becomes of it in a planned restart.
        restart: RestartPolicy = RestartPolicy::Keep,
        /// How long a kept one may wait for the new server.
        restart_grace: Period<100, {5 * MINUTE}> = seconds(5),
        /// What to do when somebody else's file is there.
        foreign: ForeignPolicy = ForeignPolicy::Fail,
    }
}

/// A range of addresses, the long form.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RangeFragment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subnet: Option<Spanned<Subnet>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_start: Option<Spanned<Address>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Spanned<Address>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<Spanned<Address>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) exclude: List<Exclude>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) set: Option<Spanned<Count<0, 15>>>,
}

/// A route in pods.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteFragment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dst: Option<Spanned<Prefix>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<Spanned<Address>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mtu: Option<Spanned<Count<68, 65_535>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advmss: Option<Spanned<Count<1, 65_535>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<Spanned<Count<0, { u32::MAX }>>>,
}

/// A destination that pods cannot reach.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlockFragment {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<Spanned<Target>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ports: Option<Spanned<List<Ports>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) except: Option<Spanned<List<Ports>>>,
}

/// What makes a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Driver {
    /// hostcni's own bridge.
    Bridge,
    /// A chain of other CNI plugins.
    Delegate,
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The bound of a CNI verb.
type Bound = Period<1_000, { 10 * MINUTE }, 1_000>;

const fn seconds<const MIN: u64, const MAX: u64, const STEP: u64>(seconds: u64) -> Period<MIN, MAX, STEP> {
    Period(Duration::from_secs(seconds))
}

/// Where the distributions and the CNI project itself put plugins.
fn plugin_dirs() -> List<AbsolutePath> {
    let usual = ["/opt/cni/bin", "/usr/libexec/cni", "/usr/lib/cni"];
    usual.iter().map(|directory| Spanned::new(0..0, AbsolutePath(directory.into()))).collect()
}

#[allow(clippy::expect_used)] // a constant, and every test that loads anything goes through here
fn builtin_name() -> NetworkName {
    "openshift-sdn".parse().expect("a valid network name")
}

#[allow(clippy::expect_used)] // a constant, and every test that loads anything goes through here
fn builtin_bridge() -> BridgeName {
    "hostcni0".parse().expect("a valid bridge name")
}

#[allow(clippy::expect_used)] // a constant, and every test that loads anything goes through here
fn builtin_subnet() -> Subnet {
    "10.128.0.0/23".parse().expect("a valid subnet")
}
