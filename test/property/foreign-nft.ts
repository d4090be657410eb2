/** Random tables of nft: one rule for each row of what expressions of nf_tables read, write and decide. */
import type { Dice } from "./foreign-dice.ts";

const FILTER_PRIORITIES = [-450, -400, -301, -300, -250, -199, -150, -101, -100, -99, -1, 0, 1, 50, 99, 100, 101, 225];
const NAT_PRIORITIES = [-190, -150, -101, -100, -99, -50, 0, 50, 99, 100, 101, 150];
const HOOKS = ["prerouting", "input", "forward", "output", "postrouting"] as const;
type Hook = (typeof HOOKS)[number];
type ChainType = "filter" | "nat" | "route";

/** A chain that rules are written for. */
interface Place {
  readonly type: ChainType;
  readonly hook: Hook;
  readonly priority: number;
  /** Called by its rules. */
  readonly called: string | undefined;
  readonly isInet: boolean;
}

/** Tables that iptables has, with the chains as it makes them. */
const OF_IPTABLES: readonly (readonly [table: string, chain: string, type: ChainType, hook: Hook, priority: number])[] =
  [
    ["filter", "INPUT", "filter", "input", 0],
    ["filter", "FORWARD", "filter", "forward", 0],
    ["filter", "FORWARD", "filter", "forward", 0],
    ["filter", "OUTPUT", "filter", "output", 0],
    ["mangle", "PREROUTING", "filter", "prerouting", -150],
    ["mangle", "OUTPUT", "route", "output", -150],
    ["nat", "PREROUTING", "nat", "prerouting", -100],
    ["nat", "POSTROUTING", "nat", "postrouting", 100],
    ["raw", "PREROUTING", "filter", "prerouting", -300],
  ];

/** One chain of the table alone may have what no walk can decide, at these odds for a rule. */
const RARE = 0.006;

export class NftTables {
  readonly #dice: Dice;
  #protocol = "tcp";

  constructor(dice: Dice) {
    this.#dice = dice;
  }

  table(index: number): { readonly text: string; readonly name: string } {
    const dice = this.#dice;
    const isInet = dice.odds(0.3);
    const name = `${isInet ? "inet" : dice.ip} ${dice.pick(["f", "filter-x", "dormant", "zz"])}${index}`;
    const types: readonly ChainType[] = ["filter", "filter", "filter", "nat", "nat", "route"];
    const bodies = dice.times(1, 3, () => dice.pick(types)).map((type, at) => this.#chain(type, at, isInet));
    return { name, text: `table ${name} {\n${[...this.#sets(), ...bodies].join("\n")}\n}` };
  }

  /** In a table of one of iptables' names, with chains that iptables may have made. */
  inTableOfIptables(index: number): string {
    const dice = this.#dice;
    const [table, chain, type, hook, priority] = dice.pick(OF_IPTABLES);
    const called = `u${index}`;
    const place: Place = { type, hook, priority, called, isInet: false };
    const inner = this.#rule({ ...place, called: undefined });
    const rules = dice.times(1, 3, () => this.#rule(place)).join("; ");
    const head = `type ${type} hook ${hook} priority ${priority}; policy accept;`;
    return `table ${dice.ip} ${table} {\n${this.#sets().join("\n")}\nchain ${called} { ${inner}; }\nchain ${chain} { ${head} ${rules}; }\n}`;
  }

  /** At a device, before all hooks of IP. */
  atDevice(index: number): string {
    const dice = this.#dice;
    const [device, verdict] = [dice.pick(["cni0", "eth0"]), dice.pick(["accept", "drop"])];
    const rule = `${dice.ip} saddr ${dice.address()} ${verdict}`;
    if (dice.odds(0.5))
      return `table netdev n${index} { chain c { type filter hook ingress device "${device}" priority 0; ${rule}; }; }`;
    return `table inet n${index} { chain c { type filter hook ingress device "${device}" priority 0; ${rule}; }; }`;
  }

  #sets(): string[] {
    const dice = this.#dice;
    const type = dice.isIPv6 ? "ipv6_addr" : "ipv4_addr";
    const verdict = () => dice.pick(["accept", "drop", "continue", "return"]);
    return [
      `set s { type ${type}; elements = { ${dice.two(() => dice.address())} } }`,
      `set n { type ${type}; flags interval; elements = { ${dice.network()} } }`,
      `set p { type inet_service; elements = { ${dice.two(() => dice.port())} } }`,
      `set d { type ${type}; flags dynamic; size 100; }`,
      `set t { type ${type}; flags timeout; elements = { ${dice.address()} timeout 1h } }`,
      `set e { type ${type} . inet_service; elements = { ${dice.two(() => `${dice.address()} . ${dice.port()}`)} } }`,
      `map m { type ${type} : ${type}; elements = { ${dice.map(
        () => dice.address(),
        () => dice.address(),
      )} } }`,
      `map k { type ${type} : mark; elements = { ${dice.map(
        () => dice.address(),
        () => dice.pick(["0x10", "0x4000"]),
      )} } }`,
      `map v { type inet_service : verdict; elements = { ${dice.map(() => dice.port(), verdict)} } }`,
      `map w { type ${type} : mark; flags dynamic; size 100; }`,
      ...(dice.extras.has("flow") ? ["flowtable ft { hook ingress priority 0; devices = { cni0, eth0 }; }"] : []),
    ];
  }

  #chain(type: ChainType, at: number, isInet: boolean): string {
    const dice = this.#dice;
    const hooks = type === "route" ? (["output"] as const) : HOOKS;
    const hook = dice.oftenSame(type === "nat" ? hooks.filter((one) => one !== "forward") : hooks);
    const priority = dice.pick(type === "nat" ? NAT_PRIORITIES : FILTER_PRIORITIES);
    const place: Place = { type, hook, priority, called: `u${at}`, isInet };
    const inner = dice.times(1, 2, () => this.#rule({ ...place, called: undefined }));
    const rules = dice.times(1, 4, () => this.#rule(place));
    const policy = dice.odds(0.04) ? "drop" : "accept";
    const head = `type ${type} hook ${hook} priority ${priority}; policy ${policy};`;
    return `chain u${at} { ${inner.join("; ")}; }\nchain c${at} { ${head} ${rules.join("; ")}; }`;
  }

  /** One protocol in each rule: nft refuses others. */
  #rule(place: Place): string {
    this.#protocol = this.#dice.pick(["tcp", "udp"]);
    const count = this.#dice.pick([0, 0, 0, 1, 1, 2]);
    const conditions = Array.from({ length: count }, () => this.#condition(place));
    return [...conditions, this.#action(place)].join(" ");
  }

  #condition(place: Place): string {
    const dice = this.#dice;
    const { hook, priority } = place;
    const isIn = hook === "prerouting" || hook === "input" || hook === "forward";
    const isOut = hook === "forward" || hook === "output" || hook === "postrouting";
    if (isIn && dice.odds(0.12)) return this.#device("i");
    if (isOut && dice.odds(0.12)) return this.#device("o");
    if (dice.odds(RARE)) return dice.one(this.#rare(place));
    if (dice.isWide && dice.odds(0.1)) return dice.one(this.#wide(place));
    // Before connection tracking, nothing of it.
    const usual = [...this.#ofHeaders(), ...this.#ofMeta(place)];
    return dice.one(priority > -200 ? [...usual, ...this.#ofConnection()] : usual);
  }

  #device(side: "i" | "o"): string {
    const dice = this.#dice;
    const name = () => `"${dice.pick(["cni0", "eth0", "out", "lo"])}"`;
    const not = dice.odds(0.15) ? "!= " : "";
    const { ip } = dice;
    return dice.one([
      () => `${side}ifname ${not}"${dice.pick(["cni0", "eth0", "e*", "lo"])}"`,
      () => `${side}if ${not}${name()}`,
      () => `${side}ifname { ${dice.two(name)} }`,
      () => `${side}ifname . ${ip} daddr { ${dice.two(() => `${name()} . ${dice.address()}`)} }`,
    ]);
  }

  #ofHeaders(): (() => string)[] {
    const dice = this.#dice;
    const [{ ip }, protocol] = [dice, this.#protocol];
    const side = () => dice.pick(["saddr", "daddr"]);
    const not = () => (dice.odds(0.15) ? "!= " : "");
    const range = dice.isIPv6 ? "fd00:180::1-fd00:180::20" : "10.180.0.1-10.180.0.20";
    const mask = dice.isIPv6 ? "ffff:ffff:: == fd00:180::" : "255.255.255.0 == 10.180.0.0";
    return [
      () => `${ip} ${side()} ${not()}${dice.place()}`,
      () => `${ip} daddr ${dice.address()}`,
      () => `${ip} ${side()} ${not()}{ ${dice.two(() => dice.address())} }`,
      () => `${ip} ${side()} ${not()}@${dice.pick(["s", "n", "d", "t"])}`,
      () => `${ip} ${side()} ${not()}${range}`,
      () => `${ip} ${side()} & ${mask}`,
      () => `${ip} saddr . ${ip} daddr { ${dice.two(() => `${dice.address()} . ${dice.address()}`)} }`,
      () => `${ip} daddr . ${protocol} dport { ${dice.two(() => `${dice.address()} . ${dice.port()}`)} }`,
      () => `${ip} daddr . ${protocol} dport ${not()}@e`,
      () => `${ip} ${dice.isIPv6 ? "nexthdr" : "protocol"} ${not()}${protocol}`,
      () => `${protocol} dport ${not()}${dice.port()}`,
      () => `${protocol} dport { ${dice.two(() => dice.port())} }`,
      () => `${protocol} dport @p`,
      () => `${protocol} dport ${not()}${dice.below(100)}-${100 + dice.below(30_000)}`,
      () => `${protocol} dport ${dice.pick(["<", ">", "<=", ">="])} ${dice.port()}`,
      () => `${protocol} sport 1024-65535`,
      () => `th dport ${not()}${dice.port()}`,
      () => (protocol === "udp" ? "udp length 0-2000" : `tcp flags & (fin | syn | rst | ack) == syn`),
      () =>
        protocol === "udp"
          ? "udp length < 12"
          : dice.pick(["tcp flags syn", "tcp flags ! fin,rst", "tcp flags & ack == ack"]),
    ];
  }

  #ofMeta({ hook, isInet }: Place): (() => string)[] {
    const dice = this.#dice;
    const { ip } = dice;
    const not = () => (dice.odds(0.15) ? "!= " : "");
    const marks = ["0", "0x4000", "& 0x4000 == 0x4000", "& 0x10 == 0", "!= 0", "0x7", "{ 0x7, 0x10 }", "1-0x20"];
    const all = [
      () => `meta l4proto ${this.#protocol}`,
      () => `meta l4proto != { icmp, sctp }`,
      () => `meta mark ${dice.pick(marks)}`,
      () => `meta mark . ${ip} saddr { ${dice.pick(["0x0", "0x10"])} . ${dice.address()} }`,
      () => `meta protocol ${ip}`,
      () => `numgen random mod 2 0`,
      () => `jhash ${ip} saddr mod 2 seed 0x5 ${dice.below(2)}`,
      () => `fib ${dice.pick(["saddr", "daddr"])} type ${not()}local`,
    ];
    if (isInet) all.push(() => `meta nfproto ${not()}ipv${dice.isIPv6 ? 6 : 4}`);
    if (hook === "output") all.push(() => `fib daddr type { local, broadcast }`);
    return all;
  }

  #ofConnection(): (() => string)[] {
    const dice = this.#dice;
    const [{ ip }, protocol] = [dice, this.#protocol];
    const states = [
      "new",
      "established,related",
      "invalid",
      "new,established",
      "untracked",
      "!= new",
      "{ new, invalid }",
    ];
    return [
      () => `ct state ${dice.pick(states)}`,
      () => `ct state ${dice.pick(states)}`,
      () => `ct mark ${dice.pick(["0", "!= 0", "0x5", "& 0x4 == 0x4"])}`,
      () => `ct mark . ${ip} saddr { 0x5 . ${dice.address()}, 0x0 . ${dice.address()} }`,
      () => `ct status ${dice.pick(["dnat", "snat", "& dnat == 0"])}`,
      () => `ct direction ${dice.pick(["original", "reply"])}`,
      // With the first, nft reads no port of an ICMP answer to a refused packet.
      () => `meta l4proto ${protocol} ct protocol ${protocol}`,
      () => `${protocol} sport 1-65535 ct original proto-dst ${dice.port()}`,
      () => `ct original ${ip} ${dice.pick(["saddr", "daddr"])} ${dice.address()}`,
      () => `ct reply ${ip} ${dice.pick(["saddr", "daddr"])} ${dice.address()}`,
    ];
  }

  /** What is there on every packet, and not known. */
  #rare({ hook, priority }: Place): (() => string)[] {
    const dice = this.#dice;
    const { ip } = dice;
    const all = [
      () => "meta length > 10",
      () => `meta pkttype ${dice.pick(["host", "broadcast"])}`,
      () =>
        dice.pick([
          "meta cpu 0",
          "meta random < 1000000",
          'meta hour "00:00"-"12:00"',
          "meta priority 0",
          "meta rtclassid 0",
        ]),
      () => "limit rate 1/hour burst 1 packets",
      () => dice.pick(["limit rate over 1/hour burst 1 packets", "quota 100 bytes", "quota over 100 bytes"]),
      () => `${ip} ${dice.isIPv6 ? "hoplimit" : "ttl"} > 1`,
      () => `${ip} dscp cs0`,
      () => `${dice.isIPv6 ? "@nh,0,8 0x60" : "@nh,0,8 0x45"}`,
      () => `@th,16,16 ${dice.port()}`,
      () => `${ip} length > 1`,
      () => `tcp option maxseg exists`,
      () => `symhash mod 2 0`,
      () => `jhash ${ip} saddr mod 2 0`,
      () => `numgen inc mod 2 0`,
    ];
    if (hook !== "input" && priority > -200)
      all.push(() =>
        dice.pick([
          "ct zone 0",
          "ct count over 5",
          "ct packets 0",
          "ct bytes < 10",
          "ct expiration > 1s",
          "ct label 1",
          'ct helper "ftp"',
          "ct id 5",
        ]),
      );
    if (hook === "prerouting" || hook === "input" || hook === "forward")
      all.push(
        () => "ether saddr != 02:00:00:00:00:09",
        () => `ether type ${ip}`,
        () => dice.pick(['meta iifkind "veth"', "meta iiftype 1", "meta iifgroup 0"]),
        () => dice.pick([`fib saddr . iif oif missing`, `fib saddr . iif oif exists`]),
      );
    if (hook === "prerouting" || hook === "input")
      all.push(
        () => `fib daddr . iif type local`,
        () => "socket transparent 0",
        () => "socket mark 0",
      );
    if (hook === "output" || hook === "postrouting")
      all.push(
        () => "meta skuid 0",
        () => `rt ${ip} nexthop ${dice.address()}`,
      );
    return all;
  }

  #wide({ hook }: Place): (() => string)[] {
    const all = [() => "meta l4proto tcp"];
    if (hook === "prerouting" || hook === "input" || hook === "forward")
      all.push(
        () => `osf name "Linux"`,
        () => `ipsec in reqid 1`,
        () => "meta secpath missing",
      );
    if (hook === "forward" || hook === "postrouting") all.push(() => "rt ipsec missing");
    return all;
  }

  #action(place: Place): string {
    const dice = this.#dice;
    const { type, called } = place;
    const calls = called === undefined ? ["return"] : [`jump ${called}`, `goto ${called}`];
    if (dice.odds(RARE)) return dice.one(this.#rareActions(place));
    if (dice.isWide && dice.odds(dice.extras.size > 0 ? 0.3 : 0.1)) return dice.one(this.#wideActions(place));
    if (dice.odds(0.45))
      return dice.one([...this.#writes(place), () => dice.pick(calls), () => dice.pick(["accept", "continue"])]);
    return type === "nat" ? this.#translation(place) : this.#verdict(place, calls);
  }

  /** What changes no way by itself. */
  #writes({ priority, called }: Place): (() => string)[] {
    const dice = this.#dice;
    const { ip } = dice;
    const all = [
      () => "counter",
      () => `meta mark set ${dice.pick(["0x10", "0x4000", "0x7"])}`,
      () => `meta mark set meta mark | ${dice.pick(["0x10", "0x4000"])}`,
      () => `meta mark set meta mark ${dice.pick(["& 0xffffbfff", "^ 0x4000", "<< 1"])}`,
      () => `meta mark set ${ip} saddr map @k`,
      () => `meta mark set ${ip} saddr map @w`,
      () => `meta mark set numgen random mod 2 map { 0 : 0x10, 1 : 0x4000 }`,
      () => `add @d { ${ip} saddr }`,
      () => `update @d { ${ip} daddr }`,
      () => `update @w { ${ip} saddr : meta mark }`,
      () => dice.pick(['log prefix "x"', "log group 1", "meta nftrace set 1", "meta priority set 1"]),
      () => dice.pick([`${ip} dscp set cs1`, "tcp option maxseg size set 500", `${ip} ecn set 0`]),
    ];
    if (called !== undefined) all.push(() => `${this.#protocol} dport vmap @v ${dice.pick(["", "counter"])}`.trim());
    if (priority > -200)
      all.push(
        () => "ct mark set 0x5",
        () => "ct mark set meta mark",
        () => "ct mark set ct mark | 0x4",
        () => "meta mark set ct mark",
        () => dice.pick(["ct label set 1", "ct event set new"]),
      );
    return all;
  }

  #verdict({ hook, priority }: Place, calls: readonly string[]): string {
    const dice = this.#dice;
    const [{ ip }, protocol] = [dice, this.#protocol];
    const verdict = () => dice.pick(["accept", "drop", "continue", "return", ...calls]);
    const one = (text: string) => () => text;
    const all = [
      ...["accept", "drop", "drop", "return", ...calls].map(one),
      () => `${protocol} dport vmap { ${dice.port()} : drop, 7777 : accept }`,
      () => `${protocol} dport vmap @v`,
      () => `${ip} daddr vmap { ${dice.map(() => dice.address(), verdict)} }`,
      () => `${ip} saddr . th dport vmap { ${dice.address()} . ${dice.port()} : ${verdict()} }`,
      () => `meta l4proto vmap { udp : ${verdict()}, tcp : ${verdict()} }`,
      () => `meta mark vmap { 0x10 : ${verdict()}, 0x0 : ${verdict()} }`,
      () => `numgen random mod 2 vmap { 0 : ${verdict()}, 1 : ${verdict()} }`,
      () => `jhash ${ip} saddr mod 3 seed 0x5 vmap { 0 : ${verdict()}, 2 : ${verdict()} }`,
    ];
    const isEarly = (hook === "prerouting" || hook === "output") && priority < -200;
    if (isEarly) all.push(one("notrack"), one("notrack"));
    if (priority <= -200) return dice.one(all);
    all.push(() => `ct state vmap { new : ${verdict()}, invalid : drop }`);
    if (hook !== "postrouting")
      all.push(one("reject"), () =>
        protocol === "tcp"
          ? "tcp dport 1-65535 reject with tcp reset"
          : `reject with icmp${dice.isIPv6 ? "v6" : ""} admin-prohibited`,
      );
    return dice.one(all);
  }

  #translation({ hook }: Place): string {
    const dice = this.#dice;
    const [{ ip }, protocol] = [dice, this.#protocol];
    const addresses = () =>
      dice.map(
        () => dice.address(),
        () => dice.address(),
      );
    if (hook === "prerouting" || hook === "output")
      return dice.one([
        () => `dnat ${ip} to ${dice.address()} ${dice.pick(["", "random", "persistent"])}`.trim(),
        () => `${protocol} dport ${dice.port()} dnat ${ip} to ${dice.end()}`,
        () => `${protocol} dport ${dice.port()} redirect to :${dice.port()}`,
        () => "redirect",
        () =>
          `${protocol} dport ${dice.port()} dnat ${ip} to numgen random mod 2 map { 0 : ${dice.address()}, 1 : ${dice.address()} }`,
        () => `dnat ${ip} to jhash ${ip} saddr mod 2 seed 0x5 map { 0 : ${dice.address()}, 1 : ${dice.address()} }`,
        () => `dnat ${ip} to ${ip} daddr map { ${addresses()} }`,
        () => `dnat ${ip} to ${ip} daddr map @m`,
        () =>
          `dnat ${ip} to ${ip} daddr . ${protocol} dport map { ${dice.address()} . ${dice.port()} : ${dice.address()} . ${dice.port()} }`,
        () => "accept",
      ]);
    const all = [
      () => `snat ${ip} to ${dice.address()}`,
      () => `snat ${ip} to ${ip} saddr map { ${addresses()} }`,
      () => "accept",
    ];
    if (hook === "postrouting")
      all.push(
        () => "masquerade",
        () => `masquerade ${dice.pick(["random", "persistent"])}`,
      );
    return dice.one(all);
  }

  #rareActions({ type, hook, priority, isInet }: Place): (() => string)[] {
    const dice = this.#dice;
    const { ip } = dice;
    const all = [
      () => `${ip} ${dice.isIPv6 ? "hoplimit" : "ttl"} set ${dice.pick([1, 64])}`,
      () => `${ip} daddr set ${dice.address()}`,
      () => `${this.#protocol} dport set ${dice.port()}`,
    ];
    if (hook !== "postrouting" && !isInet) all.push(() => `dup to ${dice.isIPv6 ? "2001:db8:9::9" : "192.0.2.99"}`);
    if (hook === "prerouting") all.push(() => `meta pkttype set ${dice.pick(["host", "broadcast"])}`);
    if (priority < -200 && (hook === "prerouting" || hook === "output")) all.push(() => "ct zone set 5");
    if (type === "nat" && (hook === "prerouting" || hook === "output"))
      all.push(
        () => `dnat ${ip} to ${dice.isIPv6 ? "fd00:180::1-fd00:180::2" : "10.180.0.1-10.180.0.2"}`,
        () => `tcp dport ${dice.port()} redirect to :8000-8010`,
      );
    if (type === "nat" && (hook === "input" || hook === "postrouting"))
      all.push(() => `snat ${ip} to ${dice.isIPv6 ? "fd00:180::1-fd00:180::2" : "10.180.0.1-10.180.0.2"}`);
    return all;
  }

  #wideActions({ hook, type }: Place): (() => string)[] {
    const dice = this.#dice;
    const all = [() => "counter"];
    if (dice.extras.has("queue"))
      all.push(
        () => "queue num 7",
        () => "queue num 7 bypass",
        () => "queue num 7-8 fanout,bypass",
      );
    if (dice.extras.has("flow") && hook === "forward") all.push(() => "flow add @ft");
    if (this.#protocol === "udp") return all;
    if (hook === "prerouting" && type === "filter")
      all.push(() => `tcp dport ${dice.port()} tproxy to :${dice.port()}`);
    if (hook === "input" || hook === "forward") all.push(() => `tcp dport ${dice.port()} synproxy mss 1460 wscale 7`);
    return all;
  }
}
