//! A client of the container runtime interface, as kubelet is one: unary gRPC over HTTP/2 on containerd's
//! socket. The messages have the field numbers of `runtime/v1/api.proto` and only the fields used here.

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// Longer than any call takes that ends.
const DEADLINE: Duration = Duration::from_secs(60);

/// A connection to a runtime. Every call blocks.
pub struct Cri {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
}

/// A call that the runtime refused, with its gRPC status, or that went wrong on the way.
pub type Refused = String;

impl Cri {
    /// Connects to the runtime's socket.
    pub fn connect(socket: &Path) -> Result<Self, Refused> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(text)?;
        let requests = runtime.block_on(async {
            let stream = UnixStream::connect(socket).await.map_err(text)?;
            let (requests, connection) = h2::client::handshake(stream).await.map_err(text)?;
            tokio::spawn(connection);
            Ok::<_, Refused>(requests)
        })?;
        Ok(Self { runtime, requests })
    }

    /// The runtime's name and version.
    pub fn version(&mut self) -> Result<(String, String), Refused> {
        let reply: VersionResponse = self.call("Version", &VersionRequest { version: "v1".to_owned() })?;
        Ok((reply.runtime_name, reply.runtime_version))
    }

    /// Whether the runtime says `NetworkReady`, and why not.
    pub fn network_ready(&mut self) -> Result<(bool, String), Refused> {
        let reply: StatusResponse = self.call("Status", &StatusRequest {})?;
        let conditions = reply.status.map(|status| status.conditions).unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.name == "NetworkReady");
        condition.map(|c| (c.status, c.message)).ok_or_else(|| "no condition NetworkReady".to_owned())
    }

    /// Runs a pod; its identifier.
    pub fn run_pod(&mut self, pod: Pod) -> Result<String, Refused> {
        let config = pod.into_config();
        let reply: RunPodSandboxResponse =
            self.call("RunPodSandbox", &RunPodSandboxRequest { config: Some(config) })?;
        Ok(reply.id)
    }

    /// The addresses of a pod.
    pub fn addresses(&mut self, id: &str) -> Result<Vec<String>, Refused> {
        let reply: PodSandboxStatusResponse = self.call("PodSandboxStatus", &of(id))?;
        let network = reply.status.and_then(|status| status.network).unwrap_or_default();
        Ok([network.ip].into_iter().chain(network.additional.into_iter().map(|other| other.ip)).collect())
    }

    /// Stops a pod: its network is torn down.
    pub fn stop_pod(&mut self, id: &str) -> Result<(), Refused> {
        self.call::<Empty>("StopPodSandbox", &of(id)).map(drop)
    }

    /// Removes a pod, stopped or not.
    pub fn remove_pod(&mut self, id: &str) -> Result<(), Refused> {
        self.call::<Empty>("RemovePodSandbox", &of(id)).map(drop)
    }

    /// The identifiers of all pods.
    pub fn pods(&mut self) -> Result<Vec<String>, Refused> {
        let reply: ListPodSandboxResponse = self.call("ListPodSandbox", &Empty {})?;
        Ok(reply.items.into_iter().map(|item| item.id).collect())
    }

    fn call<Reply: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<Reply, Refused> {
        let mut body = BytesMut::with_capacity(5 + request.encoded_len());
        body.put_u8(0); // not compressed
        body.put_u32(u32::try_from(request.encoded_len()).map_err(text)?);
        request.encode(&mut body).map_err(text)?;
        let requests = self.requests.clone();
        let exchange = exchange(requests, method, body.freeze());
        let answer = self.runtime.block_on(async { tokio::time::timeout(DEADLINE, exchange).await });
        let mut frame = answer
            .map_err(|_| format!("{method}: no answer in {DEADLINE:?}"))?
            .map_err(|e| format!("{method}: {e}"))?;
        if frame.remaining() < 5 {
            return Err(format!("{method}: an answer of {} bytes", frame.remaining()));
        }
        frame.advance(5);
        Reply::decode(frame).map_err(text)
    }
}

/// Sends one request, reads its one answer: a gRPC frame, still with its five bytes of head.
async fn exchange(requests: SendRequest<Bytes>, method: &str, body: Bytes) -> Result<Bytes, Refused> {
    let request = Request::post(format!("http://localhost/runtime.v1.RuntimeService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .map_err(text)?;
    let mut requests = requests.ready().await.map_err(text)?;
    let (response, mut stream) = requests.send_request(request, false).map_err(text)?;
    stream.send_data(body, true).map_err(text)?;
    let (head, mut incoming) = response.await.map_err(text)?.into_parts();
    let mut answer = BytesMut::new();
    while let Some(chunk) = incoming.data().await {
        let chunk = chunk.map_err(text)?;
        incoming.flow_control().release_capacity(chunk.len()).map_err(text)?;
        answer.extend_from_slice(&chunk);
    }
    // An immediate refusal has no body and its status in the head.
    let trailers = poll_fn(|context| incoming.poll_trailers(context)).await.map_err(text)?;
    let trailers = trailers.unwrap_or(head.headers);
    match field(&trailers, "grpc-status") {
        "0" => Ok(answer.freeze()),
        status => Err(format!("gRPC status {status}: {}", field(&trailers, "grpc-message"))),
    }
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

#[allow(clippy::needless_pass_by_value)] // as map_err passes it
fn text(error: impl ToString) -> Refused {
    error.to_string()
}

fn of(id: &str) -> SandboxRequest {
    SandboxRequest { id: id.to_owned() }
}

/// What a pod is asked for with.
#[derive(Clone, Default)]
pub struct Pod {
    /// Its name; also the base of its uid.
    pub name: String,
    /// TCP ports, as (on the host, in the pod).
    pub ports: Vec<(u16, u16)>,
    /// Annotations, as (key, value).
    pub annotations: Vec<(&'static str, &'static str)>,
}

impl Pod {
    /// A pod without ports.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// What its uid will be.
    pub fn uid(&self) -> String {
        format!("uid-{}", self.name)
    }

    fn into_config(self) -> PodSandboxConfig {
        let port = |(host, container): &(u16, u16)| PortMapping {
            protocol: 0,
            container_port: i32::from(*container),
            host_port: i32::from(*host),
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                uid: self.uid(),
                name: self.name.clone(),
                namespace: "default".to_owned(),
            }),
            hostname: self.name,
            log_directory: "/var/log/pods".to_owned(),
            port_mappings: self.ports.iter().map(port).collect(),
            labels: HashMap::new(),
            annotations: self
                .annotations
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
            linux: Some(LinuxPodSandboxConfig {}),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct VersionRequest {
    #[prost(string, tag = "1")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct VersionResponse {
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeCondition {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    status: bool,
    #[prost(string, tag = "4")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPodSandboxResponse {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    hostname: String,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(message, repeated, tag = "5")]
    port_mappings: Vec<PortMapping>,
    #[prost(map = "string, string", tag = "6")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct PortMapping {
    #[prost(int32, tag = "1")]
    protocol: i32,
    #[prost(int32, tag = "2")]
    container_port: i32,
    #[prost(int32, tag = "3")]
    host_port: i32,
}

#[derive(Clone, PartialEq, Message)]
struct LinuxPodSandboxConfig {}

/// Stop, Remove and Status of a pod: all have its identifier first.
#[derive(Clone, PartialEq, Message)]
struct SandboxRequest {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    items: Vec<SandboxItem>,
}

#[derive(Clone, PartialEq, Message)]
struct SandboxItem {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<PodSandboxStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxStatus {
    #[prost(message, optional, tag = "5")]
    network: Option<PodSandboxNetworkStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct PodSandboxNetworkStatus {
    #[prost(string, tag = "1")]
    ip: String,
    #[prost(message, repeated, tag = "2")]
    additional: Vec<PodIp>,
}

#[derive(Clone, PartialEq, Message)]
struct PodIp {
    #[prost(string, tag = "1")]
    ip: String,
}
