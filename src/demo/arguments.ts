/** The demo's command line. */
import { parseArgs } from "node:util";
import { type DemoMode, demoModes, isDemoMode } from "./modes.ts";

export interface DemoOptions {
  /** Verify once, print, end. */
  readonly once: boolean;
  readonly mode: DemoMode;
  /** `undefined` means the examples of the checkout. */
  readonly manifests: string | undefined;
}

export type ParsedArguments =
  | { readonly kind: "run"; readonly options: DemoOptions }
  | { readonly kind: "help" }
  | { readonly kind: "error"; readonly message: string };

const upstreamModes: readonly string[] = ["iptables", "nftables", "ipvs", "userspace", "ebpf"];

/** The text of `--help`. */
export const helpText = `Builds a throw-away node, pods and a client in network namespaces, runs kube-proxy in the node on a folder of
manifests, and shows what real requests meet. Everything is removed at the end. Needs root.

Usage: npm start -- [options]        or: bin/kube-proxy demo [options]

  --manifests PATH   folder or file of Kubernetes manifests (default: the examples of this checkout); edits are followed
  --mode MODE        proxy mode: ${Object.keys(demoModes).join(", ")} (default: iptables)
  --once             verify once, print the result, exit with status 1 if anything is not as it must be
  -h, --help         this text
`;

/** Reads the demo's arguments. Pure. */
export function parseDemoArguments(argv: readonly string[]): ParsedArguments {
  let values: { once?: boolean; help?: boolean; mode?: string; manifests?: string };
  try {
    ({ values } = parseArgs({
      args: [...argv],
      options: {
        once: { type: "boolean" },
        mode: { type: "string" },
        manifests: { type: "string" },
        help: { type: "boolean", short: "h" },
      },
    }));
  } catch (error) {
    return { kind: "error", message: `${error instanceof Error ? error.message : error}\nTry --help.` };
  }
  if (values.help === true) return { kind: "help" };
  const { mode = "iptables" } = values;
  if (!isDemoMode(mode)) {
    const known = upstreamModes.includes(mode) ? "does not exist in this version yet" : "is no proxy mode";
    return { kind: "error", message: `--mode ${mode} ${known}; there is: ${Object.keys(demoModes).join(", ")}` };
  }
  return { kind: "run", options: { once: values.once ?? false, mode, manifests: values.manifests } };
}
