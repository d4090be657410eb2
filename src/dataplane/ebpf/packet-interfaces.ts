/** Interfaces by which packets of other machines come in, and what tells when they change. */
import type { Links } from "../../kernel/route/links.ts";
import type { LocalTrafficDetector } from "../../model/local-traffic-detector.ts";
import type { IpAddress } from "../../net/ip.ts";

export interface InterfaceChoice {
  /** Names; one that ends in `*` stands for all that begin so. Empty: those that carry the node's address. */
  readonly names: readonly string[];
  readonly nodeIP: IpAddress;
  /** Interfaces of pods are never chosen. */
  readonly detector: LocalTrafficDetector;
}

/** What the node has at a moment. */
export interface NodeInterfaces {
  /** The chosen ones, by index. */
  readonly chosen: ReadonlyMap<number, string>;
  /** Addresses of all interfaces, of both families. */
  readonly addresses: ReadonlySet<IpAddress>;
}

/** Only interfaces that have an address: others, such as ports of a bridge, hand their packets to one that has. */
export async function nodeInterfaces(
  links: Pick<Links, "addresses" | "link">,
  choice: InterfaceChoice,
  signal: AbortSignal,
): Promise<NodeInterfaces> {
  const all = [...(await links.addresses("IPv4", signal)), ...(await links.addresses("IPv6", signal))];
  const names = new Set(all.filter(({ link, address }) => isWanted(choice, link, address)).map(({ link }) => link));
  const chosen = new Map<number, string>();
  for (const name of names) {
    const found = await links.link(name);
    if (found !== undefined) chosen.set(found.index, name);
  }
  return { chosen, addresses: new Set(all.map(({ address }) => address)) };
}

function isWanted({ names, nodeIP, detector }: InterfaceChoice, link: string, address: IpAddress): boolean {
  if (link === LOOPBACK || isOfPods(detector, link)) return false;
  if (names.length === 0) return address === nodeIP;
  return names.some((name) => (name.endsWith("*") ? link.startsWith(name.slice(0, -1)) : link === name));
}

const LOOPBACK = "lo";

function isOfPods(detector: LocalTrafficDetector, link: string): boolean {
  if (detector.kind === "interface") return link === detector.name;
  return detector.kind === "interface-prefix" && link.startsWith(detector.prefix);
}
