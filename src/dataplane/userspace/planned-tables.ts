/** What packets meet in the userspace mode, for `trace`: rules, spelled when they are looked at, and the sockets behind them. */
import type { KubeProxyConfig } from "../../config/config.ts";
import type { OfflineNode } from "../../inspect/offline-node.ts";
import type { SavedTable } from "../../kernel/iptables/parser/ruleset.ts";
import { cidrContains, type IpAddress, isUnspecified, joinHostPort } from "../../net/ip.ts";
import { protocolName } from "../../net/protocol.ts";
import type { PlannedRelay, PlannedRelays } from "../relay-chain.ts";
import { withCounts } from "../shared/iptables-rules/counted-rules.ts";
import { savedTables, tableContents } from "../shared/iptables-rules/saved-form.ts";
import { planConfigOf, planUserspace, routingIn } from "./cluster-plan.ts";
import { PORTAL_JUMPS, PORTAL_STATIC_PLAN } from "./plan-portal-rules.ts";
import { isServed, LANES, laneOf } from "./portals.ts";

interface PlannedTables {
  readonly tables: ReadonlyMap<string, SavedTable>;
  readonly relays: PlannedRelays;
}

/** No rule where there are to be none. @throws Error when the configuration does not let the proxy listen. */
export function plannedTables(node: OfflineNode, config: KubeProxyConfig): PlannedTables {
  const { hasRules, keys, ports, opened } = planUserspace(node, config);
  const { listenAddress } = planConfigOf(node, config);
  const relays = new Map<string, PlannedRelay>();
  for (const { port, portals, proxyPorts } of ports) {
    const protocol = protocolName(port.protocol);
    const routing = routingIn(node, port);
    for (const lane of LANES) {
      const proxyPort = proxyPorts?.[lane];
      if (proxyPort === undefined) continue;
      const place = isUnspecified(listenAddress) ? String(proxyPort) : joinHostPort(listenAddress, proxyPort);
      relays.set(`${protocol} ${place}`, { port, looksAtClient: false, endpointsFor: () => routing[lane] });
    }
    if (hasRules) continue;
    // The proxy listens at the addresses themselves, and looks at its clients.
    for (const portal of portals) {
      const { address, port: number, sources } = portal;
      const place = address === undefined ? String(number) : joinHostPort(address, number);
      relays.set(`${protocol} ${place}`, {
        port,
        looksAtClient: true,
        endpointsFor({ source, inInterface }) {
          const isIn = sources.length === 0 || sources.some((range) => cidrContains(range, source));
          const lane = laneOf(portal, inInterface === "" || isPod(node, source));
          return isIn && isServed(portal, lane) ? routing[lane] : [];
        },
      });
    }
  }
  if (!hasRules) return { tables: new Map(), relays };
  const shared = withCounts(
    new Map(ports.map(({ port, plan }) => [port.name.key, plan?.shared ?? []])),
    node.others ?? [],
    keys,
    opened,
  );
  const contents = tableContents({
    jumps: PORTAL_JUMPS,
    fixed: PORTAL_STATIC_PLAN,
    ports: shared.map((rules) => ({ shared: rules, ownChains: [], ownRules: [] })),
  });
  return { tables: savedTables(contents, node.family), relays };
}

const isPod = ({ detector }: OfflineNode, address: IpAddress): boolean =>
  detector.kind === "cidr" && cidrContains(detector.cidr, address);
