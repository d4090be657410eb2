/** Where a node's sockets are redirected, against where they should be: differences, each with its service port. */
import type { LedSocket, LiveSockets, WantedSocket } from "../../contract/inspection.ts";
import { socketLines } from "../../contract/socket-words.ts";
import { counted } from "../../logging/counted.ts";
import { placeText } from "../../model/frontend.ts";
import { isLoopback } from "../../net/ip.ts";
import type { OwnedDifference } from "./diff-dumps.ts";
import type { ExplainedCluster } from "./explained-cluster.ts";
import type { PortExplanation } from "./explanation.ts";

/** The contents of each family's maps; none in modes that redirect no sockets. @param warn gets what is unreadable. */
async function* liveSockets({ families, config }: ExplainedCluster, warn: (message: string) => void) {
  const sockets = await families[0]?.inspection.loadSockets?.();
  if (sockets === undefined) return;
  for (const one of families) {
    const { family } = one.node;
    const live = await sockets.live(family, config);
    if (live.ok) yield { ...one, family, live, wanted: () => sockets.wanted(one.node, config, live.own) };
    else warn(`what sockets connect to could not be read (${family}): ${live.reason}`);
  }
}

/** Compares with this node's kernel; empty in modes that redirect no sockets. @returns also sentences about what could not be read. */
export async function diffSockets(cluster: ExplainedCluster) {
  const differences: OwnedDifference[] = [];
  const unread: string[] = [];
  // With masqueradeAll all connections take the rules, and no map is pinned.
  if (cluster.config.masqueradeAll) return { differences, unread };
  const told = liveSockets(cluster, (line) => unread.push(`${line}; the rules alone are compared`));
  for await (const one of told) {
    const { node, live, family } = one;
    differences.push(...compareSockets(one.wanted(), live.sockets, one));
    const all = node.nodePortIPs.kind === "all" ? [...live.own] : node.nodePortIPs.ips;
    const [wanted, found] = [new Set(all.filter((address) => !isLoopback(address))), new Set(live.answering)];
    const [missing, extra] = [[...wanted.difference(found)], [...found.difference(wanted)]];
    if (missing.length + extra.length === 0) continue;
    const of = { kind: "frontend", place: `the maps of ${family}`, name: "addresses that serve node ports" } as const;
    differences.push({ ...of, state: "changed", missing, extra, servicePorts: [] });
  }
  return { differences, unread };
}

/** @param ownerOf the service port that has a frontend, if any. */
export function compareSockets(
  wanted: ReadonlyMap<string, WantedSocket>,
  found: ReadonlyMap<string, LedSocket>,
  { family, ownerOf }: { readonly family: string; ownerOf(frontend: string): string | undefined },
): OwnedDifference[] {
  return [...new Set([...wanted.keys(), ...found.keys()])].sort().flatMap((name) => {
    const [socket, other] = [wanted.get(name), found.get(name)];
    const [lines, otherLines] = [socket, other].map((one) => (one === undefined ? [] : socketLines(one)));
    const missing = lines?.filter((line) => !otherLines?.includes(line)) ?? [];
    const extra = otherLines?.filter((line) => !lines?.includes(line)) ?? [];
    if (missing.length + extra.length === 0) return [];
    const state = other === undefined ? "missing" : socket === undefined ? "extra" : "changed";
    const servicePorts = [socket?.servicePort ?? ownerOf(frontendOf(name)) ?? []].flat();
    return { state, kind: "frontend", place: `the maps of ${family}`, name, missing, extra, servicePorts } as const;
  });
}

/** The key of a frontend, as from `frontendKey`. */
const frontendOf = (place: string): string => place.replace(/^\S+/, (protocol) => protocol.toLowerCase());

/**
 * Adds what sockets meet to explanations; changes nothing in modes that redirect none.
 * @param warn gets what could not be read.
 */
export async function withSockets(
  cluster: ExplainedCluster,
  explanations: readonly PortExplanation[],
  warn: (message: string) => void,
): Promise<readonly PortExplanation[]> {
  const found = new Map<string, Extract<LiveSockets, { ok: true }>>();
  for await (const { family, live } of liveSockets(cluster, warn)) found.set(family, live);
  return explanations.map((own) => {
    const live = found.get(own.family);
    if (live === undefined) return own;
    const frontends = own.frontends.map((one) => {
      // The frontend belongs to another service port.
      if (one.owner !== null) return one;
      const led = live.sockets.get(`${own.protocol} ${placeText(one)}`);
      const whose = led?.clients === "all" ? [`for the node and ${counted(live.ledPods, "pod")}`] : [];
      return { ...one, sockets: led === undefined ? ["takes the rules"] : [...socketLines(led), ...whose] };
    });
    return { ...own, frontends };
  });
}
