//! Who is measured: each in a node of its own, all with the same pods, under an interface name of its own.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::chain::{self, Call, Plugin};
use crate::direct::Direct;
use crate::namespace::Namespace;
use crate::server::{HOSTCNI, Server};

/// How a pod's interface is made and deleted.
enum Means {
    /// The bare kernel, in a node.
    Direct(Namespace, Direct),
    /// Reference plugins, in a node.
    Chain(Namespace, Vec<Plugin>),
    /// hostcni's plugin and its server, with the server's node.
    Own(Server, Vec<Plugin>),
}

/// One of those that are measured.
pub struct Contender {
    pub name: &'static str,
    /// Whether pods stand here beside those measured; with rules for each pod that takes minutes, so not for all.
    pub crowded: bool,
    pub verbs: &'static [&'static str],
    means: Means,
    ifname: String,
}

impl Contender {
    /// Its node.
    pub fn node(&self) -> &Namespace {
        match &self.means {
            Means::Direct(node, _) | Means::Chain(node, _) => node,
            Means::Own(server, _) => &server.node,
        }
    }

    /// Whether it starts processes, as a runtime does.
    pub fn is_plugin(&self) -> bool {
        !matches!(self.means, Means::Direct(..))
    }

    /// Its server, where it has one.
    pub fn server(&mut self) -> Option<&mut Server> {
        if let Means::Own(server, _) = &mut self.means { Some(server) } else { None }
    }

    /// Calls it for the pod of this number; the result of an ADD. To be called from a thread in its node.
    pub fn call(
        &self,
        verb: &'static str,
        number: u16,
        pod: &Namespace,
        previous: Option<&Value>,
    ) -> Result<Value, String> {
        match &self.means {
            Means::Direct(_, direct) if verb == "ADD" => {
                direct.add(number, pod, &self.ifname).map(|()| Value::Null)
            }
            Means::Direct(_, direct) => direct.delete(number).map(|()| Value::Null),
            Means::Chain(_, plugins) | Means::Own(_, plugins) => {
                let container = format!("bench{number}");
                let port = 20_000 + number;
                let ifname = &self.ifname;
                chain::call(plugins, &Call { verb, container: &container, pod, ifname, port, previous })
            }
        }
    }
}

/// All of them, in the order of the table.
pub struct Contenders {
    pub all: Vec<Contender>,
    _state: tempfile::TempDir,
}

/// hostcni's name among them.
pub const OWN: &str = "hostcni";
/// The same without other pods: measured beside it at every level, so that both meet the same machine.
pub const ALONE: &str = "hostcni, no other pod";
/// That one without a word to the journal.
pub const SILENT: &str = "hostcni, no other pod, no journal";

/// A chain of three plugins called as libcni calls it, and by hostcni's delegate driver.
pub const CHAIN: &str = "bridge, portmap without ports";
pub const DELEGATE: &str = "the same behind hostcni";

impl Contenders {
    /// Makes nodes and starts servers.
    pub fn new() -> Self {
        let state = tempfile::tempdir().expect("a directory can be made");
        let reference = |name: &str, masquerade, port| {
            Means::Chain(Namespace::new(), reference(state.path(), name, masquerade, port))
        };
        let chain = chain(state.path(), "chain");
        let node = Namespace::new();
        let direct = Direct::new(&node);
        let every: &[&str] = &["ADD", "CHECK", "DEL"];
        let all = [
            ("kernel alone", true, &["ADD", "DEL"][..], Means::Direct(node, direct)),
            (OWN, true, &["ADD", "CHECK", "DEL", "STATUS"][..], own(false)),
            (ALONE, false, &["ADD", "DEL"][..], own(false)),
            (SILENT, false, &["ADD", "DEL"][..], silent()),
            ("hostcni, a host port", false, every, own(true)),
            ("bridge", true, every, reference("bridge", false, false)),
            ("bridge, masquerade", false, every, reference("masquerade", true, false)),
            (CHAIN, false, every, Means::Chain(Namespace::new(), chain)),
            (DELEGATE, false, every, delegate(state.path())),
            // CHECK of portmap 1.1.1 fails where a mapping has one family.
            ("bridge, masquerade, portmap", false, &["ADD", "DEL"], reference("portmap", true, true)),
        ];
        let all = all.into_iter().enumerate().map(|(index, (name, crowded, verbs, means))| Contender {
            name,
            crowded,
            verbs,
            means,
            ifname: format!("eth{index}"),
        });
        Self { all: all.collect(), _state: state }
    }

    /// hostcni's server, without host ports.
    pub fn server(&mut self) -> &mut Server {
        let own = self.all.iter_mut().find(|one| one.name == OWN);
        own.and_then(Contender::server).expect("it is one of them")
    }

    /// Sees to it that so many pods stand.
    pub fn stand(&self, standing: &mut Vec<Namespace>, wanted: usize) {
        while standing.len() < wanted {
            let pod = Namespace::new();
            let number = u16::try_from(standing.len()).expect("a bridge has fewer ports") + 1000;
            for contender in self.all.iter().filter(|contender| contender.crowded) {
                let made = contender.node().inside(|| contender.call("ADD", number, &pod, None));
                made.unwrap_or_else(|error| panic!("{}: {error}", contender.name));
            }
            standing.push(pod);
        }
    }
}

/// The conf that hostcni's own server would place.
fn own(port: bool) -> Means {
    let server = Server::with("subnets = [\"10.96.0.0/16\"]");
    let mut config = server.config.clone();
    config["capabilities"]["portMappings"] = port.into();
    Means::Own(server, vec![Plugin { binary: PathBuf::from(HOSTCNI), config }])
}

/// One that logs nothing.
fn silent() -> Means {
    let quiet = [("RUST_LOG", "off".to_owned())];
    let server = Server::with_environment("subnets = [\"10.96.0.0/16\"]", &quiet);
    let config = server.config.clone();
    Means::Own(server, vec![Plugin { binary: PathBuf::from(HOSTCNI), config }])
}

/// `bridge` with `host-local`, and `portmap` that has nothing to do.
fn chain(state: &Path, name: &str) -> Vec<Plugin> {
    let mut plugins = reference(state, name, false, false);
    let binary = plugins[0].binary.with_file_name("portmap");
    let config = json!({"cniVersion": "1.0.0", "name": name, "type": "portmap", "snat": true});
    plugins.push(Plugin { binary, config });
    plugins
}

/// That chain behind hostcni.
fn delegate(state: &Path) -> Means {
    let plugins = chain(state, "test");
    let list: Vec<&Value> = plugins.iter().map(|plugin| &plugin.config).collect();
    let list = json!({"cniVersion": "1.0.0", "name": "test", "plugins": list});
    let directory = plugins[0].binary.parent().expect("a plugin has a directory");
    let server = Server::with(&format!(
        "driver = \"delegate\"\n[network.delegate]\nconflist = '''{list}'''\nplugin_dirs = [\"{}\"]",
        directory.display()
    ));
    let config = server.config.clone();
    Means::Own(server, vec![Plugin { binary: PathBuf::from(HOSTCNI), config }])
}

/// `bridge` and `host-local`, and `portmap` behind them, from where the distribution has them.
fn reference(state: &Path, name: &str, masquerade: bool, port: bool) -> Vec<Plugin> {
    let directory = ["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"]
        .map(Path::new)
        .into_iter()
        .find(|directory| directory.join("bridge").exists())
        .expect("the reference plugins are installed");
    let mut plugins = vec![Plugin {
        binary: directory.join("bridge"),
        config: json!({
            "cniVersion": "1.0.0", "name": name, "type": "bridge", "bridge": "cni0",
            "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": masquerade,
            "ipam": {
                "type": "host-local", "dataDir": state,
                "ranges": [[{"subnet": "10.97.0.0/16"}]],
            },
        }),
    }];
    if port {
        plugins.push(Plugin {
            binary: directory.join("portmap"),
            config: json!({
                "cniVersion": "1.0.0", "name": name, "type": "portmap", "snat": true,
                "capabilities": {"portMappings": true},
            }),
        });
    }
    plugins
}
