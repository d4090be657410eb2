/** Chooses the node that a command looks from: one of the Nodes among the objects, if there are any. */

import type { KubeProxyConfig } from "../../contract/config/config.ts";
import { nodeNameIn } from "../../contract/inspect/offline-node.ts";
import { someOf } from "../../logging/some-of.ts";
import type { EndpointSliceRecord, NodeRecord } from "../../model/objects.ts";
import { UsageError } from "./output.ts";
import { didYouMean } from "./suggestion.ts";

type Slices = readonly Pick<EndpointSliceRecord, "endpoints">[];

/** How many names an error lists. */
const SHOWN = 4;

/**
 * The named node; otherwise the only one, this host, one with an endpoint, or the first by name without taints.
 *
 * @param slices of the Services asked about. @default none
 * @param isThisHost the command looks at this host, so that no other node will do.
 * @returns the configuration with the node's name; and a sentence that says which node was chosen, undefined if there was no choice.
 * @throws UsageError for a node that is not among the objects
 */
export function chosenNode<Config extends Pick<KubeProxyConfig, "hostnameOverride">>(
  nodes: readonly NodeRecord[],
  config: Config,
  { isThisHost = false, slices = [] }: { readonly isThisHost?: boolean; readonly slices?: Slices } = {},
): { readonly config: Config; readonly note: string | undefined } {
  const { hostnameOverride } = config;
  const names = nodes.map(({ name }) => name);
  const [only, ...others] = names;
  const [stated] = endpointNodes(slices);
  if (only === undefined && hostnameOverride === "" && stated !== undefined && !isThisHost) {
    const here = nodeNameIn(nodes, config);
    if (endpointNodes(slices).includes(here)) return { config, note: undefined };
    const note = `Seen from ${stated}, which has an endpoint; Nodes are not known. --node names another.`;
    return { config: { ...config, hostnameOverride: stated }, note };
  }
  if (only === undefined || (hostnameOverride === "" && others.length === 0)) return { config, note: undefined };
  const wanted = nodeNameIn(nodes, config);
  if (names.includes(wanted)) return { config, note: undefined };
  if (hostnameOverride !== "")
    throw new UsageError(`there is no Node "${wanted}"`, didYouMean(wanted, names) ?? nodesThere(names));
  if (isThisHost) throw new UsageError(`this host, ${wanted}, is not one of the Nodes: name its Node with --node`);
  const byName = nodes.toSorted((one, other) => (one.name < other.name ? -1 : 1));
  const withEndpoints = new Set(endpointNodes(slices));
  const untainted = byName.filter(({ taintKeys }) => taintKeys.length === 0);
  const { name } = untainted.find((one) => withEndpoints.has(one.name)) ?? untainted[0] ?? byName[0] ?? { name: only };
  const note = `Seen from ${name}, one of ${names.length} Nodes: --node names another.`;
  return { config: { ...config, hostnameOverride: name }, note };
}

/** For {@link chosenNode}: the slices, where a cluster's Nodes may not be read. */
export function seenFromSlices(objects: { readonly lacksNodes?: boolean; readonly endpointSlices: Slices }) {
  return { slices: objects.lacksNodes === true ? objects.endpointSlices : [] };
}

/** The nodes of endpoints, sorted. */
function endpointNodes(slices: Slices): readonly string[] {
  const names = slices.flatMap(({ endpoints }) => endpoints.map(({ nodeName }) => nodeName));
  return [...new Set(names)].filter((name) => name !== "").toSorted();
}

function nodesThere(names: readonly string[]): string {
  return `There ${names.length === 1 ? "is" : "are"} ${someOf(names.toSorted(), SHOWN)}.`;
}
