import assert from "node:assert/strict";
import { test } from "node:test";
import { ip } from "../../model/testing/records.ts";
import { newPacket, type Packet, type PacketQuestion, withDestination } from "../../trace/packet.ts";
import { IpRules, type SetRoute, type SetRule } from "./ip-rules.ts";
import { endingSetting, meetingPolicy, type NodeSettings } from "./node-settings.ts";

const USUAL: Readonly<Record<string, number>> = {
  "net/netfilter/nf_conntrack_count": 10,
  "net/netfilter/nf_conntrack_max": 100,
  "net/ipv4/conf/all/route_localnet": 0,
  "net/ipv4/conf/cni0/route_localnet": 0,
  "net/bridge/bridge-nf-call-iptables": 1,
};

const MAIN: SetRule = {
  ...{ priority: 32766, isNot: false, source: undefined, destination: undefined, device: undefined, mark: undefined },
  ...{ unread: [], table: "main", type: "unicast" },
};
const ROUTES: readonly SetRoute[] = [
  { cidr: "10.244.0.0/24", type: "unicast", device: "cni0" },
  { cidr: "0.0.0.0/0", type: "unicast", device: "eth0" },
];

/** The setting or route that drops a packet on its way to a pod behind cni0. */
function ended(
  values: Readonly<Record<string, number>>,
  asked: Partial<PacketQuestion> = {},
  after: Partial<Packet> = {},
  policy?: NodeSettings["policies"][number],
  more: Partial<NodeSettings> = {},
) {
  const settings: NodeSettings = {
    read: (name) => ({ ...USUAL, ...values })[name],
    devices: ["lo", "eth0", "cni0", "eth0.5"],
    bridges: new Set(["cni0"]),
    policies: [],
    uplinks: new Set(["eth0"]),
    routes: new IpRules([MAIN], new Map([["main", ROUTES]]), "IPv4"),
    withoutHairpin: ["veth1"],
    vrfs: new Map([["eth1", "red"]]),
    ...more,
  };
  const ends = { source: ip("192.0.2.7"), sourcePort: 40_000, destination: ip("10.96.0.1"), destinationPort: 80 };
  const packet = newPacket({ family: "IPv4", protocol: "tcp", inInterface: "eth0", ...ends, ...asked });
  const led = { ...withDestination(packet, ip("10.244.0.2"), 8080), outInterface: "cni0", ...after };
  const policies = policy === undefined ? [] : [policy];
  return (
    endingSetting(settings, packet, led, () => {}) ?? meetingPolicy({ ...settings, policies }, packet, led, () => {})
  );
}

test("settings end only what the proxy leads on and what meets them", () => {
  const off = { "net/ipv4/conf/eth0/forwarding": 0 };
  assert.equal(ended({}), undefined);
  assert.match(ended(off) ?? "", /^net\.ipv4\.conf\.eth0\.forwarding = 0/);
  assert.equal(ended(off, { destination: ip("10.244.0.2"), destinationPort: 8080 }), undefined, "left alone");
  assert.equal(ended(off, { inInterface: "" }), undefined, "a process of the node");
  assert.equal(ended(off, {}, { outInterface: "" }), undefined, "an endpoint on the node");
  assert.equal(ended(off, { inInterface: "cni0" }), undefined);
  assert.match(
    ended({ "net/ipv4/conf/eth0.5/forwarding": 0 }, { inInterface: "eth0.5" }) ?? "",
    /^net\.ipv4\.conf\.eth0\/5\./,
  );
});

test("a process at a loopback address needs route_localnet of one or of all", () => {
  const asked = { inInterface: "", source: ip("127.0.0.1"), destination: ip("127.0.0.1"), destinationPort: 30_080 };
  assert.equal(ended({}, asked), "net.ipv4.conf.cni0.route_localnet = 0 (set it to 1)");
  assert.equal(ended({ "net/ipv4/conf/all/route_localnet": 1 }, asked), undefined);
  assert.equal(ended({ "net/ipv4/conf/cni0/route_localnet": 1 }, asked), undefined);
});

test("pods of one bridge need its packets to pass the rules, unless they are masqueraded", () => {
  const [off, pod] = [{ "net/bridge/bridge-nf-call-iptables": 0 }, { inInterface: "cni0", source: ip("10.244.0.3") }];
  assert.match(ended(off, pod) ?? "", /^net\.bridge\.bridge-nf-call-iptables = 0 \(set it to 1\)/);
  assert.equal(ended({}, pod), undefined);
  assert.equal(ended(off), undefined);
  assert.equal(ended(off, pod, { isSourceTranslated: true }), undefined);
});

test("a pod reaches itself through a bridge port only in hairpin mode", () => {
  const self = { inInterface: "cni0", source: ip("10.244.0.2"), bridgePort: "veth1" };
  assert.match(ended({}, self) ?? "", /^veth1, which sends nothing back to its pod/);
  assert.equal(ended({}, { ...self, bridgePort: "veth2" }), undefined);
  assert.equal(ended({}, { ...self, source: ip("10.244.0.3") }), undefined);
  assert.equal(ended({ "net/bridge/bridge-nf-call-iptables": 0 }, self, { isSourceTranslated: true }), undefined);
});

test("what a device of a VRF takes in is not known", () => {
  assert.throws(() => ended({}, { inInterface: "eth1" }), /eth1 belongs to the VRF red/);
});

test("rules choose among tables, end packets, or are not read", () => {
  const other = { cidr: "10.244.0.0/16", type: "blackhole", device: undefined };
  const tables = new Map([
    ["main", ROUTES],
    ["7", [other]],
    ["8", [{ cidr: "0.0.0.0/0", type: "throw", device: undefined }]],
    ["9", [{ cidr: "198.51.100.0/24", type: "unreachable", device: undefined }]],
  ]);
  const by = (rule: Partial<SetRule>, asked: Partial<PacketQuestion> = {}, after: Partial<Packet> = {}) => {
    const routes = new IpRules([{ ...MAIN, priority: 5, ...rule }, MAIN], tables, "IPv4");
    return ended({}, asked, after, undefined, { routes });
  };
  const lost = "the route blackhole 10.244.0.0/16 (ip route delete blackhole 10.244.0.0/16 table 7)";
  assert.equal(by({ table: "7" }), lost);
  assert.equal(by({ table: "8" }), undefined, "thrown to the next rule");
  assert.equal(by({ table: "7", suppressed: 16 }), undefined);
  assert.equal(by({ table: "7", suppressed: 15 }), lost);
  assert.equal(by({ table: "7", source: "192.0.2.0/24" }), lost);
  assert.equal(by({ table: "7", source: "198.51.100.0/24" }), undefined);
  assert.equal(by({ table: "7", source: "198.51.100.0/24", isNot: true }), lost);
  assert.equal(by({ table: "7", device: "eth0" }), lost);
  assert.equal(by({ table: "7", device: "eth0" }, { inInterface: "eth2" }), undefined);
  assert.equal(by({ table: "7", destination: "10.244.0.2/32" }), lost);
  assert.equal(by({ table: "7", destination: "10.96.0.0/16" }), undefined, "the proxy has changed it");
  const mark = { value: 0x4000, mask: 0x4000 };
  assert.equal(by({ table: "7", mark }), undefined);
  assert.equal(by({ table: "7", mark }, {}, { routedMark: 0x4001 }), lost);
  const own = { inInterface: "", source: ip("192.168.0.2") };
  assert.equal(
    by({ table: undefined, type: "prohibit", destination: "10.96.0.0/16" }, own),
    "the rule prohibit (ip rule delete priority 5), which a process needs before any rule",
  );
  assert.match(
    by({ table: "9" }, { source: ip("198.51.100.7") }) ?? "",
    /^the route unreachable .*, which ends the answers$/,
  );
  assert.equal(by({ table: "9" }), undefined);
  assert.throws(() => by({ unread: ["uid_start"] }), /depends on the ip rule 5 \(uid_start\), which is not read/);
  assert.equal(by({ unread: ["uid_start"], device: "eth2" }), undefined);
  const none = new IpRules([MAIN], new Map(), "IPv4");
  assert.equal(ended({}, {}, {}, undefined, { routes: none }), "no route to 10.244.0.2");
});

test("a full table of connections ends every new one", () => {
  assert.match(ended({ "net/netfilter/nf_conntrack_count": 100 }) ?? "", /net\.netfilter\.nf_conntrack_max = 100/);
});

test("a policy of xfrm counts where it can meet a packet that the proxy leads on, or the answer", () => {
  const met = (source: string, destination: string, asked: Partial<PacketQuestion> = {}, after: Partial<Packet> = {}) =>
    ended({}, asked, after, { source, destination, text: "it" }) === "it";
  assert.equal(met("0.0.0.0/0", "10.244.0.0/24"), true, "behind the proxy");
  assert.equal(met("0.0.0.0/0", "10.96.0.0/16"), true, "as the client sent it");
  assert.equal(met("10.244.0.2/32", "192.0.2.0/24"), true, "the answer");
  assert.equal(met("198.51.100.0/24", "10.244.0.0/24"), false, "another client's");
  assert.equal(
    met("198.51.100.0/24", "10.244.0.0/24", {}, { isSourceTranslated: true }),
    true,
    "its source is not known",
  );
  assert.equal(met("0.0.0.0/0", "10.245.0.0/24"), false);
  assert.equal(
    met("0.0.0.0/0", "0.0.0.0/0", { destination: ip("10.244.0.2"), destinationPort: 8080 }),
    false,
    "left alone",
  );
  assert.equal(met("::/0", "::/0"), false);
});
