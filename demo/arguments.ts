/** The demo's command line. */

import { DEFAULT_MODE, isProxyMode, modeNamed, modesOn, type ProxyMode, runsOn } from "../src/modes/registry.ts";
import { UsageError } from "../src/tools/cli/output.ts";
import { commandLine, readLine, usageOf } from "../src/tools/cli/subcommand-options.ts";

export interface DemoOptions {
  /** Verify once, print the result and exit. */
  readonly once: boolean;
  readonly mode: ProxyMode;
  /** For modes with several layouts; absent: the mode's default. */
  readonly layout?: string;
  /** Undefined: the examples of the checkout. */
  readonly manifests: string | undefined;
  readonly hostnameOverride: string | undefined;
}

export type ParsedArguments =
  | { readonly kind: "run"; readonly options: DemoOptions }
  | { readonly kind: "help" }
  | { readonly kind: "error"; readonly message: string };

/** The node is a network namespace, so only modes for Linux run. */
const MODE_NAMES = modesOn("linux")
  .map(({ name }) => name)
  .join(", ");

const DEMO = commandLine("npm start --", {}, [
  `Builds a throw-away node, pods and a client in network namespaces, runs kube-proxy in the node on a folder of
manifests, and shows what real requests meet. Everything is removed at the end. Needs root.

Usage: npm start -- [options]

`,
  {
    "--manifests PATH":
      "folder or file of Kubernetes manifests (default: the examples of this checkout); edits are followed",
    "--hostname-override NAME":
      "the Node of the manifests to be (default: node-a, else the first that is not of the control plane)",
    "--mode MODE": `proxy mode: ${MODE_NAMES} (default: ${DEFAULT_MODE.name})`,
    "--layout LAYOUT": "how the rules are laid out, in modes that have a choice: nftables-layout of the proxy",
    "--once": "verify once, print the result, exit with status 1 if an answer or a manifest is wrong",
    "-h, --help": "this text",
  },
  `
With the services of a real cluster, whose endpoints are played by servers of the demo:

  kubectl get services,endpointslices,nodes,servicecidrs -A -o yaml > cluster.yaml
  npm start -- --manifests cluster.yaml
`,
]);

export const helpText = usageOf(DEMO);

/** Parses the demo's arguments. */
export function parseDemoArguments(argv: readonly string[]): ParsedArguments {
  try {
    return readArguments(argv);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: "error", message: error.hint === undefined ? error.message : `${error.message}\n${error.hint}` };
  }
}

function readArguments(argv: readonly string[]): ParsedArguments {
  const read = readLine(DEMO, argv);
  if (read === "help") return { kind: "help" };
  const { values } = read;
  const { mode = DEFAULT_MODE.name } = values;
  if (!isProxyMode(mode)) throw new UsageError(`--mode ${mode} is not a proxy mode; available: ${MODE_NAMES}`);
  if (!runsOn(modeNamed(mode), "linux")) {
    throw new UsageError(
      `--mode ${mode} cannot be shown: it does not run on Linux (kube-proxy render --mode ${mode} prints what it would do); ` +
        `available: ${MODE_NAMES}`,
    );
  }
  const { layout } = values;
  if (layout !== undefined && !Object.hasOwn(modeNamed(mode).config.fields, "layout")) {
    throw new UsageError(`--layout ${layout}: mode ${mode} has one layout only`);
  }
  return {
    kind: "run",
    options: {
      once: values.once,
      mode,
      ...(layout !== undefined && { layout }),
      manifests: values.manifests,
      hostnameOverride: values["hostname-override"],
    },
  };
}
