/** Checks of what the chosen local-traffic detection needs. Pure. Reference configuration.md §3.5. */
import { INTERFACE_NAME_RULE, isInterfaceName, isInterfaceNamePrefix } from "../net/interface-name.ts";
import { type Cidr, familyOf, parseCidr } from "../net/ip.ts";
import type { DraftConfig } from "./config.ts";
import { invalid } from "./field-error.ts";

// Upstream leaves the last bracket open.
const NOT_A_PAIR =
  "must be a either a single CIDR or dual-stack pair of CIDRs (e.g. [10.100.0.0/16, fde4:8dba:82e1::/48]";
const NO_INTERFACE = `must be a name that an interface can have: ${INTERFACE_NAME_RULE}`;
const NOT_A_CIDR = "must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)";

/** The errors of the section that `detectLocalMode` selects. Pure. */
export function detectLocalErrors(draft: DraftConfig, path: string): readonly string[] {
  const { bridgeInterface, clusterCIDRs, interfaceNamePrefix } = draft.detectLocal;
  switch (draft.detectLocalMode) {
    case "BridgeInterface":
      return interfaceErrors(bridgeInterface, isInterfaceName, `${path}.InterfaceName`);
    case "InterfaceNamePrefix":
      return interfaceErrors(interfaceNamePrefix, isInterfaceNamePrefix, `${path}.InterfacePrefix`);
    case "ClusterCIDR":
      return clusterCidrErrors(clusterCIDRs, `${path}.ClusterCIDRs`);
    default:
      return [];
  }
}

/** Upstream looks for an empty one alone. With any other that no interface can have, the kernel refuses all rules of the node. */
function interfaceErrors(name: string, isPossible: (name: string) => boolean, path: string): readonly string[] {
  if (name === "") return [invalid(path, "", "must not be empty")];
  return isPossible(name) ? [] : [invalid(path, name, NO_INTERFACE)];
}

function clusterCidrErrors(texts: readonly string[], path: string): readonly string[] {
  if (texts.length > 2) return [invalid(path, texts, NOT_A_PAIR)];
  const cidrs = texts.map(parseCidr);
  const errors = cidrs.flatMap((cidr, index) =>
    cidr === undefined ? [invalid(`${path}[${index}]`, texts[index] ?? "", NOT_A_CIDR)] : [],
  );
  if (errors.length === 0 && cidrs.length === 2 && !isDualStackPair(cidrs))
    errors.push(invalid(path, texts, NOT_A_PAIR));
  return errors;
}

function isDualStackPair(cidrs: readonly (Cidr | undefined)[]): boolean {
  return new Set(cidrs.map((cidr) => cidr && familyOf(cidr))).size === 2;
}
