/**
 * Random rules of other programs beside the proxy's: tables of nft and of both back ends of iptables, made before or after the
 * proxy's, at odd priorities, put to sleep and woken. The same for the same seed.
 */
import type { ClusterRecords } from "../../src/model/objects.ts";
import { seededRandom } from "../../src/trace/seeded-random.ts";

/** One command in the node's namespace. */
export interface ForeignCommand {
  readonly argv: readonly string[];
  readonly input?: string;
}

export interface ForeignRules {
  /** What is done before the proxy's rules are there, and after. */
  readonly before: readonly ForeignCommand[];
  readonly after: readonly ForeignCommand[];
  /** Whether tables have flags, which nft before 1.1.3 prints wrongly in JSON. */
  readonly hasFlags: boolean;
  readonly hasLegacy: boolean;
}

/** What rules compare. */
interface Vocabulary {
  readonly addresses: readonly string[];
  readonly networks: readonly string[];
  readonly ports: readonly number[];
}

/** @param places addresses of clients and the node. @param networks of pods and Services. */
export function vocabularyOf(
  { services, endpointSlices }: ClusterRecords,
  places: readonly string[],
  networks: readonly string[],
): Vocabulary {
  const isIPv6 = networks.some((network) => network.includes(":"));
  const declared = [
    ...services.flatMap(({ clusterIPs, externalIPs }) => [...clusterIPs, ...externalIPs]),
    ...endpointSlices.flatMap(({ endpoints }) => endpoints.map(({ address }) => String(address))),
  ];
  const ports = [
    ...services.flatMap((service) => service.ports.flatMap(({ port, nodePort }) => [port, nodePort])),
    ...endpointSlices.flatMap((slice) => slice.ports.flatMap(({ port }) => port ?? [])),
  ];
  return {
    addresses: [...new Set([...declared, ...places])].filter((address) => address.includes(":") === isIPv6),
    networks,
    ports: [...new Set([...ports, 81])].filter((port) => port > 0),
  };
}

export function foreignRules(seed: number, vocabulary: Vocabulary): ForeignRules {
  return new Generator(seed, vocabulary).rules();
}

const FILTER_PRIORITIES = [-450, -400, -301, -300, -250, -199, -150, -101, -100, -99, -1, 0, 1, 50, 99, 100, 101, 225];
const NAT_PRIORITIES = [-190, -150, -101, -100, -100, -99, -50, 0, 50, 99, 100, 100, 101, 150];
const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;
type Hook = (typeof HOOKS)[number];
type ChainType = "filter" | "nat" | "route";

const IPTABLES_CHAINS: Readonly<Record<string, readonly string[]>> = {
  raw: ["PREROUTING", "OUTPUT"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  filter: ["INPUT", "FORWARD", "OUTPUT"],
};

class Generator {
  readonly #random: () => number;
  readonly #words: Vocabulary;
  readonly #isIPv6: boolean;
  #protocol = "tcp";

  constructor(seed: number, words: Vocabulary) {
    this.#random = seededRandom(seed * 7_919 + 17);
    this.#words = words;
    this.#isIPv6 = words.networks.some((network) => network.includes(":"));
  }

  rules(): ForeignRules {
    const before: ForeignCommand[] = [];
    const after: ForeignCommand[] = [];
    let [hasFlags, hasLegacy] = [false, false];
    for (let index = 0; index < 1 + this.#below(3); index += 1) {
      const into = this.#odds(0.5) ? before : after;
      if (this.#odds(0.62)) {
        const { text, name } = this.#table(index);
        into.push(nft(text));
        if (this.#odds(0.2)) {
          hasFlags = true;
          const late = this.#odds(0.5) ? after : into;
          late.push(nft(`add table ${name} { flags dormant; }`));
          if (this.#odds(0.6)) after.push(nft(`add table ${name}`));
        }
      } else {
        const isLegacy = this.#odds(0.4);
        hasLegacy ||= isLegacy;
        into.push(...this.#iptables(isLegacy));
      }
    }
    return { before, after, hasFlags, hasLegacy };
  }

  #below(count: number): number {
    return Math.floor(this.#random() * count);
  }

  #odds(odds: number): boolean {
    return this.#random() < odds;
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#below(list.length)] as T; // lists here are not empty
  }

  #address(): string {
    return this.#pick(this.#words.addresses);
  }

  #port(): number {
    return this.#pick(this.#words.ports);
  }

  #place(): string {
    return this.#odds(0.7) ? this.#address() : this.#pick(this.#words.networks);
  }

  #two(of: () => string | number): string {
    const found = new Set([of(), of()]);
    return [...found].join(", ");
  }

  #table(index: number): { readonly text: string; readonly name: string } {
    const own = this.#isIPv6 ? "ip6" : "ip";
    const name = `${this.#odds(0.3) ? "inet" : own} ${this.#pick(["f", "filter-x", "dormant", "zz"])}${index}`;
    const type = this.#isIPv6 ? "ipv6_addr" : "ipv4_addr";
    const lines = [
      `set s { type ${type}; elements = { ${this.#two(() => this.#address())} } }`,
      `set n { type ${type}; flags interval; elements = { ${this.#pick(this.#words.networks)} } }`,
      `set p { type inet_service; elements = { ${this.#two(() => this.#port())} } }`,
      `set d { type ${type}; flags dynamic; size 100; }`,
    ];
    const types: readonly ChainType[] = ["filter", "filter", "filter", "nat", "nat", "route"];
    const chains = Array.from({ length: 1 + this.#below(3) }, (_, at) => ({ at, type: this.#pick(types) }));
    const bodies: string[] = [];
    for (const { at, type: kind } of chains) {
      const hooks = kind === "route" ? (["output"] as const) : HOOKS;
      const hook = this.#pick(kind === "nat" ? hooks.filter((one) => one !== "forward") : hooks);
      const priority = this.#pick(kind === "nat" ? NAT_PRIORITIES : FILTER_PRIORITIES);
      const called = `u${at}`;
      const inner = Array.from({ length: 1 + this.#below(2) }, () => this.#rule(kind, hook, priority, undefined));
      const rules = Array.from({ length: 1 + this.#below(4) }, () => this.#rule(kind, hook, priority, called));
      const policy = this.#odds(0.04) ? "drop" : "accept";
      bodies.push(`chain ${called} { ${inner.join("; ")}; }`);
      bodies.push(
        `chain c${at} { type ${kind} hook ${hook} priority ${priority}; policy ${policy}; ${rules.join("; ")}; }`,
      );
    }
    return { name, text: `table ${name} {\n${[...lines, ...bodies].join("\n")}\n}` };
  }

  /** One protocol in each rule: nft refuses others. */
  #rule(type: ChainType, hook: Hook, priority: number, called: string | undefined): string {
    this.#protocol = this.#pick(["tcp", "udp"]);
    const conditions = Array.from({ length: this.#below(3) }, () => this.#condition(hook, priority));
    return [...conditions, this.#action(type, hook, priority, called)].join(" ");
  }

  #condition(hook: Hook, priority: number): string {
    const ip = this.#isIPv6 ? "ip6" : "ip";
    const side = () => this.#pick(["saddr", "daddr"]);
    const not = () => (this.#odds(0.15) ? "!= " : "");
    const all: (() => string)[] = [
      () => `${ip} ${side()} ${not()}${this.#place()}`,
      () => `${ip} daddr ${this.#address()}`,
      () => `${ip} ${side()} { ${this.#two(() => this.#address())} }`,
      () => `${ip} ${side()} ${not()}@${this.#pick(["s", "n", "d"])}`,
      () => `${ip} saddr . ${ip} daddr { ${this.#two(() => `${this.#address()} . ${this.#address()}`)} }`,
      () => `${ip} daddr . ${this.#protocol} dport { ${this.#two(() => `${this.#address()} . ${this.#port()}`)} }`,
      () => `${this.#protocol} dport ${not()}${this.#port()}`,
      () => `${this.#protocol} dport { ${this.#two(() => this.#port())} }`,
      () => `${this.#protocol} dport @p`,
      () => `${this.#protocol} dport ${this.#below(100)}-${100 + this.#below(30_000)}`,
      () => `${this.#protocol} sport 1024-65535`,
      () => `meta l4proto ${this.#protocol}`,
      () => `meta mark ${this.#pick(["0", "0x4000", "& 0x4000 == 0x4000", "& 0x10 == 0", "!= 0", "0x7"])}`,
      () =>
        `ct state ${this.#pick(["new", "established,related", "invalid", "new,established", "untracked", "!= new"])}`,
      () => `ct mark ${this.#pick(["0", "!= 0", "0x5"])}`,
      () => `ct status ${this.#pick(["dnat", "snat", "& dnat == 0"])}`,
      () => `ct direction original`,
      () => `${this.#protocol} sport 1-65535 ct original proto-dst ${this.#port()}`,
      () => `ct original ${ip} daddr ${this.#address()}`,
      () => `fib ${side()} type ${not()}local`,
      () => `meta protocol ${ip}`,
      () => (this.#protocol === "udp" ? `udp length 0-2000` : `tcp flags & (fin | syn | rst | ack) == syn`),
    ];
    const rare: (() => string)[] = [
      () => `ether saddr != 02:00:00:00:00:09`,
      () => `meta pkttype ${this.#pick(["host", "broadcast"])}`,
      () => `meta length > 10`,
      () => `limit rate 1/hour burst 1 packets`,
      () => `meta iifkind "veth"`,
      () => `numgen random mod 2 0`,
    ];
    const isIn = hook === "prerouting" || hook === "input" || hook === "forward";
    const isOut = hook === "forward" || hook === "output" || hook === "postrouting";
    if (isIn && this.#odds(0.12)) return `iifname ${not()}"${this.#pick(["cni0", "eth0", "e*", "lo"])}"`;
    if (isOut && this.#odds(0.12)) return `oifname ${not()}"${this.#pick(["cni0", "eth0", "out", "lo"])}"`;
    // Before connection tracking, nothing of it.
    if (this.#odds(0.02)) return this.#pick(rare.filter((_, at) => isIn || ![0, 4].includes(at)))();
    const usual = priority > -200 ? all : all.filter((make) => !make.toString().includes("ct "));
    return this.#pick(usual)();
  }

  #action(type: ChainType, hook: Hook, priority: number, called: string | undefined): string {
    const calls = called === undefined ? ["return"] : [`jump ${called}`, `goto ${called}`];
    const marks = [
      `meta mark set ${this.#pick(["0x10", "0x4000", "0x7"])}`,
      `meta mark set meta mark | ${this.#pick(["0x10", "0x4000"])}`,
      `meta mark set meta mark & 0xffffbfff`,
    ];
    const ip = this.#isIPv6 ? "ip6" : "ip";
    if (this.#odds(0.45)) {
      const common = ["accept", "counter", ...calls, ...marks, `add @d { ${ip} saddr }`, "continue"];
      if (priority > -200) common.push("ct mark set 0x5", "ct mark set meta mark", "meta mark set ct mark");
      return this.#pick(common);
    }
    if (type === "nat") return this.#translation(hook);
    const verdicts = ["accept", "drop", "drop", "return", ...calls];
    if (hook !== "postrouting" && priority > -200) verdicts.push("reject");
    const vmaps = [
      `${this.#protocol} dport vmap { ${this.#port()} : drop, 7777 : accept }`,
      `${ip} daddr vmap { ${this.#address()} : drop }`,
      `${ip} saddr . th dport vmap { ${this.#address()} . ${this.#port()} : ${this.#pick(["drop", "accept", "return"])} }`,
      `meta l4proto vmap { udp : ${this.#pick(["accept", "drop"])}, tcp : ${this.#pick(["accept", "continue"])} }`,
    ];
    const isEarly = (hook === "prerouting" || hook === "output") && priority < -200;
    if (isEarly) verdicts.push("notrack");
    if (this.#odds(0.01)) return this.#pick([`${ip} ${this.#isIPv6 ? "hoplimit" : "ttl"} set 1`, "meta nftrace set 1"]);
    return this.#pick([...verdicts, ...vmaps]);
  }

  #translation(hook: Hook): string {
    const ip = this.#isIPv6 ? "ip6" : "ip";
    const end = (port: number) => (this.#isIPv6 ? `[${this.#address()}]:${port}` : `${this.#address()}:${port}`);
    const protocol = this.#protocol;
    if (hook === "prerouting" || hook === "output")
      return this.#pick([
        () => `dnat ${ip} to ${this.#address()}`,
        () => `${protocol} dport ${this.#port()} dnat ${ip} to ${end(this.#port())}`,
        () => `${protocol} dport ${this.#port()} redirect to :${this.#port()}`,
        () =>
          `${protocol} dport ${this.#port()} dnat ${ip} to numgen random mod 2 map { 0 : ${this.#address()}, 1 : ${this.#address()} }`,
        () => `dnat ${ip} to ${ip} daddr map { ${this.#address()} : ${this.#address()} }`,
        () => `accept`,
      ])();
    const all = [() => `snat ${ip} to ${this.#address()}`, () => "accept"];
    if (hook === "postrouting")
      all.push(
        () => "masquerade",
        () => "masquerade",
      );
    return this.#pick(all)();
  }

  #iptables(isLegacy: boolean): ForeignCommand[] {
    const tool = `${this.#isIPv6 ? "ip6tables" : "iptables"}-${isLegacy ? "legacy" : "nft"}`;
    const table = this.#pick(Object.keys(IPTABLES_CHAINS));
    const chains = IPTABLES_CHAINS[table] ?? [];
    const user = `U${this.#below(3)}`;
    const commands: (readonly string[])[] = [["-N", user]];
    for (let count = 0; count < 1 + this.#below(3); count += 1) {
      const chain = this.#pick(chains);
      const target = this.#odds(0.2) ? ["-j", user] : this.#target(table, chain);
      commands.push([this.#pick(["-A", "-I"]), chain, ...this.#matches(chain, target), ...target]);
    }
    const [chain = ""] = chains;
    const target = this.#target(table, table === "nat" ? "none" : chain);
    commands.push(["-A", user, ...this.#matches("none", target), ...target]);
    return commands.map((words) => ({ argv: [tool, "-w", "-t", table, ...words] }));
  }

  #matches(chain: string, target: readonly string[]): string[] {
    const isIn = ["PREROUTING", "INPUT", "FORWARD"].includes(chain);
    const isOut = ["FORWARD", "OUTPUT", "POSTROUTING"].includes(chain);
    const protocol = this.#pick(["tcp", "udp"]);
    const words: string[] = target.some((word) => /:\d+\]?$/.test(word) || word === "--to-ports")
      ? ["-p", protocol]
      : [];
    const all: (() => string[])[] = [
      () => ["-s", this.#place()],
      () => ["!", "-d", this.#place()],
      () => ["-d", this.#place()],
      () => ["-m", "mark", "--mark", this.#pick(["0x4000/0x4000", "0", "0x10"])],
      () => ["-m", "conntrack", "--ctstate", this.#pick(["NEW", "RELATED,ESTABLISHED", "INVALID", "DNAT"])],
      () => ["-m", "addrtype", "--dst-type", "LOCAL"],
      () => ["-m", "addrtype", "!", "--src-type", "LOCAL"],
      () => ["-m", "comment", "--comment", "of another program"],
      () => ["-m", "statistic", "--mode", "random", "--probability", "0.5"],
      () => ["-m", "connmark", "--mark", "0x5"],
    ];
    if (!this.#isIPv6) all.push(() => ["-m", "iprange", "--src-range", "10.180.0.2-10.180.0.20"]);
    const taken = new Set<number>();
    for (let count = 0; count < this.#below(3); count += 1) {
      const at = this.#below(all.length);
      // An option may be given once; -d and ! -d are one.
      const kind = at === 2 ? 1 : at;
      if (!taken.has(kind)) words.push(...(all[at]?.() ?? []));
      taken.add(kind);
    }
    if (words[0] === "-p" || this.#odds(0.4)) {
      if (words[0] !== "-p") words.push("-p", protocol);
      if (this.#odds(0.5)) words.push("-m", protocol, "--dport", `${this.#port()}`);
      else if (this.#odds(0.4)) words.push("-m", "multiport", "--dports", `${this.#port()},8000:8090`);
    }
    if (isIn && this.#odds(0.2)) words.push("-i", this.#pick(["cni0", "eth0", "e+"]));
    if (isOut && this.#odds(0.2)) words.push("-o", this.#pick(["cni0", "out"]));
    return words;
  }

  #target(table: string, chain: string): string[] {
    const end = () => (this.#isIPv6 ? `[${this.#address()}]:${this.#port()}` : `${this.#address()}:${this.#port()}`);
    const all: string[][] = [
      ["-j", "ACCEPT"],
      ["-j", "RETURN"],
    ];
    if (table === "nat") {
      if (chain === "PREROUTING" || chain === "OUTPUT")
        all.push(
          ["-j", "DNAT", "--to-destination", end()],
          ["-j", "REDIRECT", "--to-ports", `${this.#port()}`],
          ["-j", "DNAT", "--to-destination", this.#address()],
        );
      if (chain === "POSTROUTING") all.push(["-j", "MASQUERADE"], ["-j", "SNAT", "--to-source", this.#address()]);
      return this.#pick(all);
    }
    all.push(["-j", "DROP"], ["-j", "DROP"]);
    if (table === "filter") all.push(["-j", "REJECT"]);
    if (table === "mangle")
      all.push(
        ["-j", "MARK", "--set-xmark", "0x4000/0x4000"],
        ["-j", "CONNMARK", "--save-mark"],
        ["-j", "CONNMARK", "--restore-mark"],
        ["-j", "DSCP", "--set-dscp", "0x1"],
      );
    if (table === "raw") all.push(["-j", "CT", "--notrack"]);
    return this.#pick(all);
  }
}

const nft = (input: string): ForeignCommand => ({ argv: ["nft", "-f", "-"], input: `${input}\n` });
