/** Random rules of iptables, of both back ends: matches and targets of each kind. */
import type { Dice } from "./foreign-dice.ts";

const CHAINS: Readonly<Record<string, readonly string[]>> = {
  raw: ["PREROUTING", "OUTPUT"],
  mangle: ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"],
  nat: ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"],
  filter: ["INPUT", "FORWARD", "OUTPUT"],
};
const RARE = 0.01;

type Words = readonly string[];

export class IptablesRules {
  readonly #dice: Dice;

  constructor(dice: Dice) {
    this.#dice = dice;
  }

  commands(isLegacy: boolean): Words[] {
    const dice = this.#dice;
    const tool = `${dice.isIPv6 ? "ip6tables" : "iptables"}-${isLegacy ? "legacy" : "nft"}`;
    const table = dice.pick(Object.keys(CHAINS));
    const chains = CHAINS[table] ?? [];
    const user = `U${dice.below(3)}`;
    const commands: Words[] = [["-N", user]];
    for (let count = 0; count < 1 + dice.below(3); count += 1) {
      const chain = dice.pick(chains);
      const target = dice.odds(0.2) ? [dice.pick(["-j", "-j", "-g"]), user] : this.#target(table, chain);
      commands.push([dice.pick(["-A", "-I"]), chain, ...this.#matches(table, chain, target), ...target]);
    }
    const [chain = ""] = chains;
    const target = this.#target(table, table === "nat" ? "none" : chain);
    commands.push(["-A", user, ...this.#matches(table, "none", target), ...target]);
    if (table === "filter" && dice.odds(0.03)) commands.push(["-P", dice.pick(chains), "DROP"]);
    return commands.map((words) => [tool, "-w", "-t", table, ...words]);
  }

  #matches(table: string, chain: string, target: Words): string[] {
    const dice = this.#dice;
    const isIn = ["PREROUTING", "INPUT", "FORWARD"].includes(chain);
    const isOut = ["FORWARD", "OUTPUT", "POSTROUTING"].includes(chain);
    const isOfTcp = target.some((word) => ["tcp-reset", "TCPMSS", "TCPOPTSTRIP", "TPROXY", "SYNPROXY"].includes(word));
    const isOfPorts = target.some((word) => /:\d+\]?$/.test(word) || word === "--to-ports");
    const protocol = isOfTcp ? "tcp" : dice.pick(["tcp", "udp"]);
    const words = isOfTcp || isOfPorts || dice.odds(0.4) ? this.#transport(protocol) : [];
    const all = [...this.#common(), ...(table === "raw" ? [] : this.#ofConnection())];
    const taken = new Set<number>();
    for (let count = 0; count < dice.below(3); count += 1) {
      const at = dice.below(all.length);
      // An option may be given once; -d and ! -d are one.
      const kind = at === 2 ? 1 : at;
      if (!taken.has(kind)) words.push(...(all[at]?.() ?? []));
      taken.add(kind);
    }
    if (target.includes("TCPMSS")) words.push("--tcp-flags", "SYN,RST", "SYN");
    if (dice.odds(RARE)) words.push(...dice.pick(this.#rare(chain)));
    if (dice.isWide && isIn && dice.odds(0.1)) words.push(..."-m policy --dir in --pol none".split(" "));
    if (isIn && dice.odds(0.2)) words.push(...(dice.odds(0.2) ? ["!"] : []), "-i", dice.pick(["cni0", "eth0", "e+"]));
    if (isOut && dice.odds(0.2)) words.push("-o", dice.pick(["cni0", "out"]));
    if (chain === "OUTPUT" && dice.odds(0.05)) words.push("-m", "owner", "!", "--uid-owner", "4000000000");
    return words;
  }

  #transport(protocol: string): string[] {
    const dice = this.#dice;
    const ports = ["-m", protocol, "--dport", `${dice.port()}`];
    const others: Words[] = [
      ["-m", protocol, "--sport", "1024:65535"],
      ["-m", protocol, "!", "--dport", `${dice.port()}`],
      ["-m", protocol, "--dport", `${dice.below(100)}:${100 + dice.below(30_000)}`],
      ["-m", "multiport", "--dports", `${dice.port()},8000:8090`],
      ["-m", "multiport", "!", "--dports", `${dice.port()},8000:8090`],
      ["-m", "multiport", "--ports", `${dice.port()},53`],
      ...(protocol === "tcp" ? [["-m", "tcp", "--syn"]] : []),
      [],
    ];
    return ["-p", protocol, ...(dice.odds(0.5) ? ports : dice.pick(others))];
  }

  #common(): (() => Words)[] {
    const dice = this.#dice;
    const range = dice.isIPv6 ? "fd00:180::2-fd00:180::20" : "10.180.0.2-10.180.0.20";
    return [
      () => ["-s", dice.place()],
      () => ["!", "-d", dice.place()],
      () => ["-d", dice.place()],
      () => ["-m", "mark", ...(dice.odds(0.2) ? ["!"] : []), "--mark", dice.pick(["0x4000/0x4000", "0", "0x10"])],
      () => ["-m", "addrtype", "--dst-type", "LOCAL"],
      () => ["-m", "addrtype", "!", "--src-type", "LOCAL"],
      () => ["-m", "comment", "--comment", "of another program -j DROP"],
      () => ["-m", "statistic", "--mode", "random", "--probability", "0.5"],
      () => ["-m", "iprange", ...(dice.odds(0.2) ? ["!"] : []), dice.pick(["--src-range", "--dst-range"]), range],
      () => ["-m", "set", ...(dice.odds(0.2) ? ["!"] : []), "--match-set", `fs${dice.ip}`, dice.pick(["src", "dst"])],
    ];
  }

  #ofConnection(): (() => Words)[] {
    const dice = this.#dice;
    return [
      () => [
        "-m",
        "conntrack",
        ...(dice.odds(0.2) ? ["!"] : []),
        "--ctstate",
        dice.pick(["NEW", "RELATED,ESTABLISHED", "INVALID", "DNAT", "UNTRACKED"]),
      ],
      () => ["-m", "state", "--state", dice.pick(["NEW", "INVALID"])],
      () => ["-m", "connmark", "--mark", dice.pick(["0x5", "0x4/0x4", "0"])],
      () => ["-m", "conntrack", "--ctorigdst", dice.place()],
      () => ["-m", "conntrack", "--ctproto", dice.pick(["tcp", "udp"])],
      () => ["-m", "conntrack", "--ctdir", dice.pick(["ORIGINAL", "REPLY"])],
      () => ["-m", "conntrack", "--ctorigdstport", `${dice.port()}`],
    ];
  }

  /** What is not known of a packet. */
  #rare(chain: string): Words[] {
    const all = [
      "-m cpu --cpu 0",
      "-m recent --name fuzz --set",
      "-m recent --name fuzz --rcheck",
      "-m time --timestart 00:00 --timestop 12:00",
      "-m limit --limit 1/hour --limit-burst 1",
      "-m hashlimit --hashlimit-name h --hashlimit-above 1/hour --hashlimit-burst 1 --hashlimit-mode srcip",
      "-m quota --quota 100",
      "-m length --length 0:100",
      "-m pkttype --pkt-type unicast",
      "-m tos --tos 0",
      "-m dscp --dscp 0",
      "-m string --string x --algo bm",
      "-m u32 --u32 0=0",
      "-m connbytes --connbytes 0: --connbytes-dir both --connbytes-mode packets",
      "-m statistic --mode nth --every 2 --packet 0",
      this.#dice.isIPv6 ? "-m hl --hl-gt 1" : "-m ttl --ttl-gt 1",
    ];
    if (chain === "PREROUTING" || chain === "FORWARD" || chain === "INPUT")
      all.push("-m mac --mac-source 02:00:00:00:00:01", "-m devgroup --src-group 0", "-m physdev --physdev-in none");
    if (chain === "OUTPUT" || chain === "POSTROUTING") all.push("-m owner --uid-owner 0", "-m realm --realm 0");
    return all.map((words) => words.split(" "));
  }

  #target(table: string, chain: string): Words {
    const dice = this.#dice;
    const all: Words[] = [
      ["-j", "ACCEPT"],
      ["-j", "RETURN"],
    ];
    if (table === "nat") return dice.pick([...all, ...this.#translations(chain)]);
    all.push(["-j", "DROP"], ["-j", "DROP"]);
    if (dice.odds(0.2)) return dice.pick(this.#idle());
    if (dice.isWide && dice.odds(0.15)) return dice.pick(this.#wide(table, chain));
    if (table === "filter") {
      const prohibited = dice.isIPv6 ? "icmp6-adm-prohibited" : "icmp-admin-prohibited";
      all.push(["-j", "REJECT"], ["-j", "REJECT", "--reject-with", dice.pick(["tcp-reset", prohibited])]);
    }
    if (table === "mangle") return dice.pick([...all, ...this.#mangle(chain)]);
    if (table === "raw") all.push(["-j", "CT", "--notrack"], ["-j", "CT", "--notrack"]);
    if (table === "raw" && dice.odds(RARE)) return ["-j", "CT", "--zone", "5"];
    return dice.pick(all);
  }

  #translations(chain: string): Words[] {
    const dice = this.#dice;
    const network = dice.isIPv6 ? "fd00:180::/120" : "10.180.0.0/24";
    if (chain === "PREROUTING" || chain === "OUTPUT")
      return [
        ["-j", "DNAT", "--to-destination", dice.end()],
        ["-j", "DNAT", "--to-destination", dice.end(), dice.pick(["--random", "--persistent"])],
        ["-j", "DNAT", "--to-destination", dice.address()],
        ["-j", "DNAT", "--to-destination", dice.isIPv6 ? `[::]:${dice.port()}` : `:${dice.port()}`],
        ["-j", "REDIRECT", "--to-ports", `${dice.port()}`],
        ["-j", "REDIRECT"],
        ...(dice.odds(RARE) ? [["-j", "NETMAP", "--to", network]] : []),
      ];
    if (chain !== "POSTROUTING") return [];
    const masquerade = ["-j", "MASQUERADE"];
    return [
      masquerade,
      [...masquerade, "--random"],
      ["-j", "SNAT", "--to-source", dice.address()],
      ...(dice.odds(RARE) ? [["-j", "NETMAP", "--to", network]] : []),
    ];
  }

  #idle(): Words[] {
    const dice = this.#dice;
    const copied = ["-j", "TEE", "--gateway", dice.isIPv6 ? "2001:db8:9::9" : "192.0.2.99"];
    return [["-j", "LOG"], ["-j", "NFLOG", "--nflog-group", "1"], ...(dice.odds(RARE) ? [copied] : [])];
  }

  #mangle(chain: string): Words[] {
    const dice = this.#dice;
    const set = ["-j", "MARK"];
    const kept = ["-j", "CONNMARK"];
    const all: Words[] = [
      [...set, "--set-xmark", "0x4000/0x4000"],
      [...set, dice.pick(["--set-mark", "--or-mark", "--and-mark", "--xor-mark"]), dice.pick(["0x10", "0x4000"])],
      [...kept, "--save-mark"],
      [...kept, "--restore-mark"],
      [...kept, "--set-mark", "0x5"],
      [...kept, "--save-mark", "--nfmask", "0x10", "--ctmask", "0x10"],
      [...kept, "--restore-mark", "--nfmask", "0x10", "--ctmask", "0x10"],
      ["-j", "DSCP", "--set-dscp", "0x1"],
      ["-j", "TOS", "--set-tos", "0x8"],
      ["-j", dice.isIPv6 ? "HL" : "TTL", dice.isIPv6 ? "--hl-inc" : "--ttl-inc", "1"],
      ["-j", "CHECKSUM", "--checksum-fill"],
      ["-j", "TCPOPTSTRIP", "--strip-options", "mss"],
    ];
    if (chain === "FORWARD" || chain === "POSTROUTING")
      all.push(["-j", "TCPMSS", "--clamp-mss-to-pmtu"], ["-j", "CLASSIFY", "--set-class", "1:1"]);
    if (dice.odds(RARE))
      return [
        ["-j", dice.isIPv6 ? "HL" : "TTL", dice.isIPv6 ? "--hl-set" : "--ttl-set", "1"],
        ["-j", "HMARK", "--hmark-tuple", "src", "--hmark-mod", "2", "--hmark-rnd", "1"],
        ["-j", "SET", "--add-set", `fs${dice.ip}`, "src"],
      ];
    return all;
  }

  #wide(table: string, chain: string): Words[] {
    const all: Words[] = [
      ["-j", "NFQUEUE", "--queue-num", "7"],
      ["-j", "NFQUEUE", "--queue-num", "7", "--queue-bypass"],
    ];
    if (table === "mangle" && chain === "PREROUTING") all.push(["-j", "TPROXY", "--on-port", `${this.#dice.port()}`]);
    if (table === "filter" && (chain === "INPUT" || chain === "FORWARD")) all.push(["-j", "SYNPROXY", "--mss", "1460"]);
    return all;
  }
}
