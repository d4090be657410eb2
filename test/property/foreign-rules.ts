/**
 * Random rules of other programs beside the proxy's: tables of nft and of both back ends of iptables, made before or after the
 * proxy's, at odd priorities, put to sleep and woken. The same for the same seed.
 */
import type { ClusterRecords } from "../../src/model/objects.ts";
import { parseIpAddress } from "../../src/net/ip.ts";
import { Dice, type Extra, type Vocabulary } from "./foreign-dice.ts";
import { IptablesRules } from "./foreign-iptables.ts";
import { NftTables } from "./foreign-nft.ts";

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
    addresses: [...new Set([...declared, ...places])].filter(
      // A headless Service has none.
      (address) => isIPv6 === address.includes(":") && parseIpAddress(address) !== undefined,
    ),
    networks,
    ports: [...new Set([...ports, 81])].filter((port) => port > 0),
  };
}

/**
 * Whether a set may have what hands packets to another program, which no walk follows: queues, tproxy, synproxy, osf, xfrm. Of these sets
 * many are not proved.
 */
export const isWide = (seed: number, extras: ReadonlySet<Extra>): boolean => seed % (extras.size > 0 ? 2 : 8) === 1;

/** @param extras what this kernel has. */
export function foreignRules(seed: number, vocabulary: Vocabulary, extras: ReadonlySet<Extra>): ForeignRules {
  const dice = new Dice(seed, vocabulary, isWide(seed, extras), extras);
  const [tables, iptables] = [new NftTables(dice), new IptablesRules(dice)];
  const before: ForeignCommand[] = [ipset(dice)];
  const after: ForeignCommand[] = [];
  if (dice.isWide && extras.has("ipvs") && dice.odds(0.3)) before.push(...virtualServer(dice));
  let hasFlags = false;
  for (let index = 0; index < 1 + dice.below(3); index += 1) {
    const into = dice.odds(0.5) ? before : after;
    const kind = dice.below(200);
    if (kind < 116) {
      const { text, name } = tables.table(index);
      into.push(nft(text));
      if (dice.odds(0.2)) {
        hasFlags = true;
        const late = dice.odds(0.5) ? after : into;
        late.push(nft(`add table ${name} { flags dormant; }`));
        if (dice.odds(0.6)) after.push(nft(`add table ${name}`));
      }
    } else if (kind < 124) into.push(nft(tables.inTableOfIptables(index)));
    else if (kind < 125) into.push(nft(tables.atDevice(index)));
    else into.push(...iptables.commands(dice.odds(0.4)).map((argv) => ({ argv })));
  }
  return { before, after, hasFlags };
}

/** Sets of iptables' own, for `--match-set`. */
function ipset(dice: Dice): ForeignCommand {
  const [name, family] = [`fs${dice.ip}`, dice.isIPv6 ? "inet6" : "inet"];
  const adds = dice.times(1, 3, () => `add -exist ${name} ${dice.address()}`);
  const input = [`create -exist ${name} hash:ip family ${family}`, `flush ${name}`, ...adds, ""].join("\n");
  return { argv: ["ipset", "restore"], input };
}

/** Of another program, at an address of the node. */
function virtualServer(dice: Dice): ForeignCommand[] {
  const node = dice.isIPv6 ? "[fd00:200::2]" : "10.200.0.2";
  const service = [dice.pick(["-t", "-u"]), `${node}:${dice.port()}`];
  return [
    { argv: ["sysctl", "-qw", "net.ipv4.vs.conntrack=1"] },
    { argv: ["ipvsadm", "-A", ...service, "-s", "rr"] },
    { argv: ["ipvsadm", "-a", ...service, "-r", dice.end(), "-m"] },
  ];
}

const nft = (input: string): ForeignCommand => ({ argv: ["nft", "-f", "-"], input: `${input}\n` });
