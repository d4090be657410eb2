/**
 * One node and one machine with many addresses, for single packets: what the kernel did with each is read from connection
 * tracking, so that no endpoint has to exist. What gets through leaves an entry that says where it was led and with which
 * source; what is refused comes back as an error of the socket; what is dropped leaves nothing.
 */
import { type ChildProcess, execFileSync, fork, spawnSync } from "node:child_process";
import { closeSync, mkdtempSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { libc } from "../../src/kernel/netlink/libc.ts";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import { type NetlinkRuleset, openNetlinkRuleset } from "../../src/kernel/nftables/netlink-nftables.ts";
import type { Nftables } from "../../src/kernel/nftables/nftables.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../../src/kernel/socket-address.ts";
import type { NftablesPlan } from "../../src/modes/nftables/cluster-plan.ts";
import { familyOf, type IpAddress, type IpFamily, parseIpAddress } from "../../src/net/ip.ts";
import type { Dump } from "../../src/trace/dump/recognise.ts";
import type { PacketQuestion } from "../../src/trace/packet.ts";
import { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { newRunName } from "../../testkit/net/run-name.ts";
import { stretched } from "../../testkit/support/patience.ts";

/** What the kernel did with a packet. */
export type Observed =
  | {
      readonly kind: "passed";
      readonly destination: IpAddress;
      readonly port: number;
      readonly source: IpAddress;
      /** Whether it was turned away afterwards: a node's own packet to itself, when it came in. */
      readonly isRefused: boolean;
    }
  | { readonly kind: "refused" }
  | { readonly kind: "silence" };

/** Rules to put in force: input of iptables-restore, or what the program itself would send. */
export type LoadedRules =
  | { readonly kind: "iptables-restore"; readonly text: string }
  | { readonly kind: "netlink"; readonly plan: NftablesPlan }
  /** What the tools of the ipvs mode read. */
  | { readonly kind: "ipvs"; readonly dumps: readonly Dump[] };

export interface LabAddresses {
  readonly node: readonly IpAddress[];
  /** Behind the node's interface `cni0`, and behind `eth0`. */
  readonly pods: readonly IpAddress[];
  readonly outside: readonly IpAddress[];
}

interface SentPacket {
  readonly fd: number;
  entry: Omit<Observed & { kind: "passed" }, "isRefused"> | undefined;
  isRefused: boolean;
  isAnswered: boolean;
}

const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK = 0o4000;
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_ERROR = 4;
const ECONNREFUSED = 111;
/** Both ends of a pair without ARP have one hardware address, so that each takes what the other sends. */
const HARDWARE = { cni0: "02:00:00:00:00:01", eth0: "02:00:00:00:00:02", out: "02:00:00:00:00:03" } as const;
const NAMES: Readonly<Record<string, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };
const IPPROTO_SCTP = 132;
/** Errors of ICMP count for SCTP only with this option: its level and number for each family. */
const RECEIVE_ERRORS = { IPv4: [0, 11], IPv6: [41, 25] } as const;
const FIRST_PORT = 20_000;
const LIMIT_MS = 2_000;
const GRACE_MS = 20;
const ENTRY =
  /^(tcp|udp|sctp)\s.*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+).*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)/;

/** A reset that answers a connection's first packet takes its entry away before it is listed. For `sh`, in a namespace without other rules. */
const WITHOUT_RESETS = ["iptables", "ip6tables"]
  .map((tool) => `${tool} -t raw -F; ${tool} -t raw -A OUTPUT -p tcp --tcp-flags RST RST -j DROP`)
  .join("\n");
/** The same before the rules of any program, which could let it pass. User-mode Linux has no nftables for it. */
const WITHOUT_RESETS_FIRST = `flush ruleset
table inet lab { chain output { type filter hook output priority -500; tcp flags & rst == rst drop; }; }`;

export class PacketLab {
  readonly #node: NetworkNamespace;
  readonly #clients: NetworkNamespace;
  readonly #nodeAddresses: readonly IpAddress[];
  readonly #folder = mkdtempSync(join(tmpdir(), "kpts-packets-"));
  readonly #ruleset: NetlinkRuleset;
  readonly #stop = new AbortController();
  #chainHistory: Nftables["chainHistory"];
  /** By protocol and source port, which no two packets share. */
  readonly #sent = new Map<string, SentPacket>();
  #nextPort = FIRST_PORT;
  /** Whether a packet of the node to itself certainly passes. */
  #hasMarker = true;
  #family: IpFamily = "IPv4";

  private constructor(node: NetworkNamespace, clients: NetworkNamespace, nodeAddresses: readonly IpAddress[]) {
    this.#node = node;
    this.#clients = clients;
    this.#nodeAddresses = nodeAddresses;
    this.#ruleset = inNetworkNamespace(node.path, () => openNetlinkRuleset());
  }

  static async create(addresses: LabAddresses): Promise<PacketLab> {
    const [node, clients] = await NetworkNamespace.createAll([newRunName("tracenode"), newRunName("traceclients")]);
    if (node === undefined || clients === undefined) throw new TypeError("two namespaces");
    const sysctls = {
      "net.ipv4.ip_forward": 1,
      "net.ipv6.conf.all.forwarding": 1,
      "net.ipv4.conf.all.rp_filter": 0,
      "net.ipv4.conf.default.rp_filter": 0,
      "net.ipv4.conf.all.send_redirects": 0,
      "net.ipv4.conf.default.send_redirects": 0,
      "net.ipv6.conf.all.accept_dad": 0,
      "net.ipv6.conf.default.accept_dad": 0,
      "net.ipv4.icmp_ratelimit": 0,
      "net.ipv4.icmp_msgs_burst": 100_000,
      "net.ipv4.icmp_msgs_per_sec": 100_000,
      "net.ipv6.icmp.ratelimit": 0,
    };
    node.sysctl(sysctls);
    clients.sysctl({ ...sysctls, "net.ipv4.ip_forward": 0, "net.ipv6.conf.all.forwarding": 0 });
    await node.configure([
      "link set lo up",
      ...(["cni0", "eth0", "out"] as const).flatMap((name) => [
        `link add ${name} address ${HARDWARE[name]} type veth peer name ${name} address ${HARDWARE[name]} netns ${clients.name}`,
        `link set ${name} arp off addrgenmode none up`,
      ]),
      // What is redirected goes to an address of the interface that it came in by.
      ...(["out", "cni0", "eth0"] as const).flatMap((name) =>
        addresses.node.map((ip) => `addr add ${ip} dev ${name}${ip.includes(":") ? " nodad" : ""}`),
      ),
      "route add default dev out",
      "route add ::/0 dev out",
      ...addresses.pods.map((ip) => `route add ${ip} dev cni0`),
      ...addresses.outside.map((ip) => `route add ${ip} dev eth0`),
    ]);
    await clients.configure([
      "link set lo up",
      "link set cni0 arp off addrgenmode none up",
      "link set eth0 arp off addrgenmode none up",
      // Nothing forwards here: what arrives for others ends.
      "link set out arp off addrgenmode none up",
      // Without a route in the main table, by which packets to each other would never leave.
      ...[...addresses.pods, ...addresses.outside].map((ip) => `addr add ${ip} dev lo noprefixroute`),
      "route add default dev eth0",
      "route add ::/0 dev eth0",
      "route add default dev cni0 table 7",
      "route add ::/0 dev cni0 table 7",
    ]);
    // From one pod to another the way is by the node as well: local addresses are looked up last.
    const sources = [
      ...addresses.pods.map((ip) => [ip, "7"] as const),
      ...addresses.outside.map((ip) => [ip, "main"] as const),
    ];
    for (const [option, isOfFamily] of [
      ["-4", (ip: IpAddress) => familyOf(ip) === "IPv4"],
      ["-6", (ip: IpAddress) => familyOf(ip) === "IPv6"],
    ] as const) {
      const rules = [
        "rule add preference 9000 lookup local",
        ...["cni0", "eth0"].map((name) => `rule add preference 1 iif ${name} lookup local`),
        ...sources
          .filter(([ip]) => isOfFamily(ip))
          .map(([ip, way]) => `rule add preference 100 from ${ip} lookup ${way}`),
        "rule delete preference 0",
      ];
      await clients.exec(["ip", option, "-batch", "-"], { input: rules.join("\n") });
    }
    await clients.exec(["sh", "-e"], { input: WITHOUT_RESETS });
    return new PacketLab(node, clients, addresses.node);
  }

  async remove(): Promise<void> {
    this.#stop.abort();
    await this.#ruleset.close();
    for (const { fd } of this.#sent.values()) closeSync(fd);
    await NetworkNamespace.removeAll([this.#node, this.#clients]);
    rmSync(this.#folder, { recursive: true });
  }

  /**
   * Puts rules of one family in force, and nothing else. They must look at connections: the kernel tracks none otherwise.
   * No packets of the other family may be sent.
   * @param beside rules of other programs, to be made before these and after. @default none
   */
  async load(rules: LoadedRules, family: IpFamily, beside?: Record<"before" | "after", () => void>): Promise<void> {
    this.#hasMarker = beside === undefined;
    const run = (tool: string, ...args: string[]) =>
      inNetworkNamespace(this.#node.path, () => execFileSync(tool, args, { stdio: ["ignore", "ignore", "pipe"] }));
    if (rules.kind === "ipvs") this.#loadIpvs(rules.dumps, family);
    else run("nft", WITHOUT_RESETS_FIRST);
    if (beside !== undefined) this.#forget();
    beside?.before();
    if (rules.kind === "netlink") {
      const { operations, table } = rules.plan;
      const own = this.#ruleset.open({ family: table.family, table: table.name });
      // As a daemon does: what it adds is known to be new.
      if (this.#chainHistory !== undefined) await own.read();
      await own.transact(operations);
    } else if (rules.kind === "iptables-restore") {
      const file = join(this.#folder, "rules");
      writeFileSync(file, rules.text);
      run(family === "IPv6" ? "ip6tables-restore" : "iptables-restore", file);
    }
    beside?.after();
    this.#close();
    this.#family = family;
    await this.#settled();
  }

  #close(): void {
    for (const { fd } of this.#sent.values()) closeSync(fd);
    this.#sent.clear();
  }

  /** Source ports start again, with no connection of before. */
  #forget(): void {
    this.#close();
    this.tool(["conntrack", "-F"]);
    // An answer that ends the association, by no listener, lets its entry go after ten seconds.
    this.#node.sysctl({ "net.netfilter.nf_conntrack_sctp_timeout_closed": 600 });
    this.#inClients("flush set ip seen s; flush set ip6 seen s");
    this.#nextPort = FIRST_PORT;
  }

  /** Runs a tool in the node's namespace. */
  tool([file = "", ...args]: readonly string[], input = "") {
    return inNetworkNamespace(this.#node.path, () =>
      spawnSync(file, args, { input, encoding: "utf8", maxBuffer: 2 ** 28 }),
    );
  }

  get node(): NetworkNamespace {
    return this.#node;
  }

  /** Follows base chains from now on, as a daemon does. */
  watchChains(): void {
    for (const family of ["ip", "ip6"] as const) {
      const table = this.#ruleset.open({ family, table: "kube-proxy" });
      const watch = () => table.watch(() => {}, this.#stop.signal);
      inNetworkNamespace(this.#node.path, watch).catch(() => {});
      this.#chainHistory = table.chainHistory;
    }
  }

  /** What was seen of them. */
  async chainHistory() {
    return await this.#chainHistory?.();
  }

  /** A process of this program's own kind in the node's namespace. */
  fork(file: string): ChildProcess {
    return inNetworkNamespace(this.#node.path, () => fork(file, { serialization: "advanced" }));
  }

  #inClients(command: string): string {
    return inNetworkNamespace(this.#clients.path, () => execFileSync("nft", ["-nn", command], { encoding: "utf8" }));
  }

  /** Notes what comes out of the node, from now on: packets without a connection leave nothing else. */
  watchArrivals(): void {
    const table = (family: string, type: string) =>
      `table ${family} seen { set s { type ${type} . inet_proto . inet_service . ${type} . inet_service; flags dynamic; size 60000; }
        chain c { type filter hook prerouting priority -450; meta l4proto { tcp, udp, sctp } update @s { ${family} saddr . meta l4proto . th sport . ${family} daddr . th dport }; }\n}`;
    this.#inClients(`${table("ip", "ipv4_addr")}\n${table("ip6", "ipv6_addr")}\n`);
  }

  /** Whether a machine has said that it has no such socket: no router says that. */
  isAnswered({ protocol, sourcePort }: PacketQuestion): boolean {
    return this.#sent.get(`${protocol} ${sourcePort}`)?.isAnswered === true;
  }

  /** What came out, by protocol and source port. */
  arrivals(): ReadonlyMap<string, Observed> {
    const family = this.#family === "IPv6" ? "ip6" : "ip";
    const text = this.#inClients(`list set ${family} seen s`);
    const found = new Map<string, Observed>();
    for (const [, from = "", number, sport, to = "", dport] of text.matchAll(
      /(\S+) \. (6|17|132) \. (\d+) \. (\S+) \. (\d+)/g,
    )) {
      const [source, destination] = [parseIpAddress(from), parseIpAddress(to)];
      if (source === undefined || destination === undefined) continue;
      const key = `${NAMES[number ?? ""]} ${sport}`;
      found.set(key, { kind: "passed", source, destination, port: Number(dport), isRefused: false });
    }
    return found;
  }

  /** In a namespace of a kernel that has IPVS. */
  #loadIpvs(dumps: readonly Dump[], family: IpFamily): void {
    const iptables = family === "IPv6" ? "ip6tables" : "iptables";
    const run = (input: string, tool: string, ...args: string[]) =>
      execFileSync("ip", ["netns", "exec", this.#node.name, tool, ...args], {
        input,
        stdio: ["pipe", "ignore", "pipe"],
      });
    const clean = [
      ...["iptables", "ip6tables"].flatMap((tool) =>
        ["nat", "filter"].map((table) => `${tool} -t ${table} -F; ${tool} -t ${table} -X`),
      ),
      "ipset destroy",
      "ipvsadm -C",
      "ip link delete kube-ipvs0 2>/dev/null",
      // The translation of a virtual server shows in connection tracking, and postrouting may add its own.
      "sysctl -qw net.ipv4.vs.conntrack=1",
      WITHOUT_RESETS,
      "true",
    ];
    run(clean.join("\n"), "sh");
    const tools = { addresses: ["ip", "-batch", "-"], ipset: ["ipset", "restore"], chains: ["ipvsadm", "-R"] };
    // Sets before the rules that ask them.
    for (const kind of ["addresses", "ipset", "chains"] as const) {
      const [tool = "", ...args] = tools[kind];
      for (const dump of dumps) if (dump.kind === kind && dump.text !== undefined) run(dump.text, tool, ...args);
    }
    for (const dump of dumps) if (dump.kind === "iptables") run(dump.text, `${iptables}-restore`);
    // The kernel adds routes of IPv6 addresses in a work queue, after it has answered; until then packets pass by the rules of input.
    const count = (words: string) => `$(ip -6 -o ${words} dev kube-ipvs0 2>/dev/null | wc -l)`;
    const isLate = `[ ${count("addr show")} -gt ${count("route show table local")} ]`;
    run(`for i in $(seq 200); do ${isLate} || exit 0; sleep 0.02; done; exit 1`, "sh");
  }

  /** A source port that no packet has had. */
  takePort(): number {
    this.#nextPort += 1;
    return this.#nextPort;
  }

  /** Whether this kernel has sockets of the protocol. */
  canSend(protocol: "sctp"): boolean {
    spawnSync("modprobe", ["-q", protocol]);
    const fd = libc().socket(ADDRESS_FAMILIES.IPv4, SOCK_STREAM, IPPROTO_SCTP);
    if (fd >= 0) closeSync(fd);
    return fd >= 0;
  }

  /** Sends one packet. */
  send({ protocol, source, sourcePort = 0, destination, destinationPort = 0, inInterface }: PacketQuestion): void {
    const from = inInterface === "" ? this.#node : this.#clients;
    const kind = protocol === "udp" ? SOCK_DGRAM : SOCK_STREAM;
    const isSctp = protocol === "sctp";
    const fd = inNetworkNamespace(from.path, () => {
      const calls = libc();
      const opened = calls.socket(
        ADDRESS_FAMILIES[familyOf(source)],
        kind | SOCK_NONBLOCK | SOCK_CLOEXEC,
        isSctp ? IPPROTO_SCTP : 0,
      );
      const [level, option] = RECEIVE_ERRORS[familyOf(source)];
      if (isSctp) calls.setsockopt(opened, level, option, Buffer.from(new Uint32Array([1]).buffer), 4);
      const [own, other] = [
        { address: source, port: sourcePort },
        { address: destination, port: destinationPort },
      ];
      const bytes = socketAddress(own);
      if (calls.bind(opened, bytes, bytes.length) < 0) throw new Error(`cannot send from ${source}:${sourcePort}`);
      const target = socketAddress(other);
      const status = calls.connect(opened, target, target.length);
      if (protocol === "udp" && status < 0) throw new Error(`no way from ${source} to ${destination}`);
      return opened;
    });
    this.#sent.set(`${protocol} ${sourcePort}`, { fd, entry: undefined, isRefused: false, isAnswered: false });
    if (protocol === "udp") writeAtMost(fd);
  }

  /**
   * What became of everything that was sent since rules were loaded, once the kernel is through with it.
   * @param isSilent packets that are expected to leave nothing: they are not waited for.
   * @param limitMs how long the others are, on an idle machine.
   */
  async observed(isSilent: (key: string) => boolean, limitMs = LIMIT_MS): Promise<ReadonlyMap<string, Observed>> {
    await this.#settled();
    const end = performance.now() + stretched(limitMs);
    while (!this.#lookForRefusals(isSilent) && performance.now() < end) {
      await sleep(2);
      await this.#lookForEntries();
    }
    // A refusal that is not expected would have come back by now as well.
    await sleep(GRACE_MS);
    this.#lookForRefusals(isSilent);
    // What has an entry was led: no rule has refused it.
    await this.#lookForEntries();
    return new Map(
      Array.from(this.#sent, ([key, { entry, isRefused }]): [string, Observed] => {
        if (entry !== undefined) return [key, { ...entry, isRefused }];
        return [key, { kind: isRefused ? "refused" : "silence" }];
      }),
    );
  }

  /** Lists the table: of events the kernel loses some (ENOBUFS), however large the buffer is. */
  async #lookForEntries(): Promise<void> {
    const family = this.#family === "IPv6" ? "ipv6" : "ipv4";
    const { stdout } = await this.#node.exec(["conntrack", "-L", "-f", family]);
    for (const line of stdout.split("\n")) this.#onEntry(line);
  }

  /** @returns whether all is known but what is expected to be silent. */
  #lookForRefusals(isSilent: (key: string) => boolean): boolean {
    let isComplete = true;
    for (const [key, packet] of this.#sent) {
      const error = errorOf(packet.fd);
      if (error !== 0) packet.isRefused = true;
      if (error === ECONNREFUSED) packet.isAnswered = true;
      if (packet.entry === undefined && !packet.isRefused && !isSilent(key)) isComplete = false;
    }
    return isComplete;
  }

  /** A packet that certainly passes is seen after all that came before it. */
  async #settled(): Promise<void> {
    if (!this.#hasMarker) return sleep(GRACE_MS);
    const end = performance.now() + stretched(2 * LIMIT_MS);
    const marker = this.#nodeAddresses.find((address) => familyOf(address) === this.#family);
    if (marker === undefined) throw new TypeError(`the node has no address of ${this.#family}`);
    for (;;) {
      const sourcePort = this.takePort();
      const key = `udp ${sourcePort}`;
      const ends = { source: marker, sourcePort, destination: marker, destinationPort: 9 };
      this.send({ family: familyOf(marker), protocol: "udp", inInterface: "", ...ends });
      const packet = this.#sent.get(key);
      for (let round = 0; round < 10 && packet?.entry === undefined; round += 1) {
        await sleep(5);
        await this.#lookForEntries();
      }
      this.#sent.delete(key);
      if (packet !== undefined) closeSync(packet.fd);
      if (packet?.entry !== undefined) return;
      if (performance.now() > end) throw new Error("conntrack -L lists nothing");
    }
  }

  #onEntry(line: string): void {
    const [, protocol, , , sport, , replySource, replyDestination, replySport] = ENTRY.exec(line) ?? [];
    const packet = this.#sent.get(`${protocol} ${sport}`);
    const [destination, source] = [parseIpAddress(replySource ?? ""), parseIpAddress(replyDestination ?? "")];
    if (packet === undefined || destination === undefined || source === undefined) return;
    packet.entry = { kind: "passed", destination, port: Number(replySport), source };
  }
}

function errorOf(fd: number): number {
  const value = new Int32Array(1);
  libc().getsockopt(fd, SOL_SOCKET, SO_ERROR, Buffer.from(value.buffer), Buffer.from(new Uint32Array([4]).buffer));
  return value[0] ?? 0;
}

const SAID_AT_ONCE: ReadonlySet<unknown> = new Set(["EPERM", "ECONNREFUSED", "EHOSTUNREACH", "EACCES"]);

/** The kernel says at once what it drops, or refuses, on its way out of the node itself. */
function writeAtMost(fd: number): void {
  try {
    writeSync(fd, "?");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && SAID_AT_ONCE.has(error.code))) throw error;
  }
}
