//! Results between the versions of the specification.
//!
//! Three shapes: 0.1.0 and 0.2.0 know one address of each family; 0.3.0 to 0.4.0 have lists, with the family
//! spelled out; 1.0.0 drops that, 1.1.0 adds fields to interfaces and routes.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{AddResult, CniVersion, Dns, Error, ErrorCode, IpConfig, Route};

impl AddResult {
    /// The result as a runtime of that version reads it. What the version cannot say is left out, except a
    /// result without any address for the versions that need one: that is an error.
    pub fn to_version(&self, version: CniVersion) -> Result<Value, Error> {
        let mut object = Map::new();
        object.insert("cniVersion".to_owned(), version.as_str().into());
        let body = if version <= CniVersion::V0_2_0 { self.to_families()? } else { self.to_lists(version)? };
        object.extend(body);
        Ok(Value::Object(object))
    }

    /// Reads a result of that version; unknown fields are passed over.
    pub fn from_version(version: CniVersion, value: &Value) -> Result<Self, Error> {
        let wrong = |error: serde_json::Error| {
            Error::new(ErrorCode::Decoding, format!("prevResult is no result of version {version}: {error}"))
        };
        if version <= CniVersion::V0_2_0 {
            return Families::deserialize(value).map(Self::from).map_err(wrong);
        }
        Self::deserialize(value).map_err(wrong)
    }

    fn to_families(&self) -> Result<Map<String, Value>, Error> {
        let families = Families {
            ip4: self.family(|ip| ip.is_ipv4()),
            ip6: self.family(|ip| ip.is_ipv6()),
            dns: self.dns.clone(),
        };
        if families.ip4.is_none() && families.ip6.is_none() {
            let text = "a result without an address cannot be told in versions before 0.3.0";
            return Err(Error::new(ErrorCode::IncompatibleVersion, text));
        }
        object(&families)
    }

    fn family(&self, of: impl Fn(IpAddr) -> bool) -> Option<Family> {
        let ip = self.ips.iter().find(|ip| of(ip.address.addr()))?;
        let routes = self.routes.iter().filter(|route| of(route.dst.addr()));
        Some(Family {
            ip: ip.address,
            gateway: ip.gateway,
            routes: routes.map(|route| Route::new(route.dst, route.gw)).collect(),
        })
    }

    fn to_lists(&self, version: CniVersion) -> Result<Map<String, Value>, Error> {
        let mut result = self.clone();
        if version < CniVersion::V1_1_0 {
            for interface in &mut result.interfaces {
                interface.mtu = None;
                interface.socket_path = None;
                interface.pci_id = None;
            }
            for route in &mut result.routes {
                *route = Route::new(route.dst, route.gw);
            }
        }
        let mut object = object(&result)?;
        if version < CniVersion::V1_0_0
            && let Some(Value::Array(ips)) = object.get_mut("ips")
        {
            for (ip, config) in ips.iter_mut().zip(&self.ips) {
                ip["version"] = if config.address.addr().is_ipv4() { "4" } else { "6" }.into();
            }
        }
        Ok(object)
    }
}

fn object(value: &impl Serialize) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Ok(Map::new()),
        Err(error) => Err(Error::new(ErrorCode::Io, error.to_string())),
    }
}

/// The shape of 0.1.0 and 0.2.0.
#[derive(Serialize, Deserialize)]
struct Families {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip4: Option<Family>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip6: Option<Family>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Serialize, Deserialize)]
struct Family {
    ip: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

impl From<Families> for AddResult {
    fn from(families: Families) -> Self {
        let mut result = Self { dns: families.dns, ..Self::default() };
        for family in [families.ip4, families.ip6].into_iter().flatten() {
            result.ips.push(IpConfig { interface: None, address: family.ip, gateway: family.gateway });
            result.routes.extend(family.routes);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cni::Interface;

    fn net() -> impl Strategy<Value = IpNet> {
        prop_oneof![
            (any::<u32>(), 0..=32_u8).prop_map(|(ip, len)| IpNet::new(IpAddr::V4(ip.into()), len).unwrap()),
            (any::<u128>(), 0..=128_u8).prop_map(|(ip, len)| IpNet::new(IpAddr::V6(ip.into()), len).unwrap()),
        ]
    }

    prop_compose! {
        fn ip()(interface in any::<Option<u32>>(), address in net(), gateway in proptest::option::of(net())) -> IpConfig {
            IpConfig { interface, address, gateway: gateway.map(|gateway| gateway.addr()) }
        }
    }

    prop_compose! {
        fn route()(
            dst in net(), gw in proptest::option::of(net()), mtu in any::<Option<u32>>(),
            priority in any::<Option<u32>>(), scope in any::<Option<u32>>(),
        ) -> Route {
            Route { mtu, priority, scope, ..Route::new(dst, gw.map(|gw| gw.addr())) }
        }
    }

    prop_compose! {
        fn interface()(name in "[a-z0-9]{1,15}", mtu in any::<Option<u32>>(), sandbox in any::<Option<String>>()) -> Interface {
            Interface { name, mtu, sandbox, ..Interface::default() }
        }
    }

    prop_compose! {
        fn result()(
            interfaces in proptest::collection::vec(interface(), 0..4),
            ips in proptest::collection::vec(ip(), 0..4),
            routes in proptest::collection::vec(route(), 0..4),
            nameservers in proptest::collection::vec("[0-9.]{1,9}", 0..3),
        ) -> AddResult {
            AddResult { interfaces, ips, routes, dns: Dns { nameservers, ..Dns::default() } }
        }
    }

    proptest! {
        #[test]
        fn the_newest_version_loses_nothing(result in result()) {
            let value = result.to_version(CniVersion::CURRENT).unwrap();
            prop_assert_eq!(AddResult::from_version(CniVersion::CURRENT, &value).unwrap(), result);
        }

        #[test]
        fn every_version_keeps_the_addresses_it_can_say(result in result()) {
            for version in CniVersion::ALL.iter().copied() {
                let Ok(value) = result.to_version(version) else {
                    prop_assert!(version <= CniVersion::V0_2_0 && result.ips.is_empty());
                    continue;
                };
                prop_assert_eq!(&value["cniVersion"], version.as_str());
                let back = AddResult::from_version(version, &value).unwrap();
                if version >= CniVersion::V0_3_0 {
                    prop_assert_eq!(&back.ips, &result.ips);
                } else {
                    prop_assert!(back.ips.iter().all(|ip| result.ips.iter().any(|it| it.address == ip.address)));
                }
                // Told again, it is the same.
                prop_assert_eq!(back.to_version(version).unwrap(), value);
            }
        }
    }
}
