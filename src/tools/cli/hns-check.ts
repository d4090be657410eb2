/** `kube-proxy hns-check`: what HNS on this Windows host is and does, for a report about a node. */
import { modeNamed } from "../../modes/registry.ts";
import { EXIT_FAILURE, EXIT_SUCCESS, UsageError } from "./output.ts";
import { command, commandLine } from "./subcommand-options.ts";

const HNS_CHECK = commandLine("kube-proxy hns-check", {}, [
  `Usage: kube-proxy hns-check [options]

Asks the Host Networking Service of this Windows host what it is and has: its version, the network of the pods, documents as it
words them, and how long each call takes. With --write it also makes an endpoint and a load balancer at addresses that are for
documentation (192.0.2.1, 192.0.2.2 port 32750), compares what was sent with what is read back, and removes both again. Run it as
Administrator, and not beside a running kube-proxy.

`,
  {
    "--network-name NAME": "the HNS network of the pods (default: the environment variable KUBE_NETWORK)",
    "--write": "make, change and remove the two objects, too",
    "-h, --help": "this text",
  },
  `
Examples:
  kube-proxy hns-check --network-name cbr0
  kube-proxy hns-check --network-name cbr0 --write

Exit status: 0 when all is as kernelspace mode needs it, 1 when there is a FAULT, 2 when it cannot run here.
`,
]);

/** Runs `hns-check`. */
export const hnsCheck = command(HNS_CHECK, async ({ values }, output) => {
  const { "network-name": networkName = process.env.KUBE_NETWORK ?? "" } = values;
  if (process.platform !== "win32") throw new UsageError("hns-check is only for Windows");
  if (networkName === "") throw new UsageError("hns-check needs --network-name NAME or KUBE_NETWORK");
  const { checkHost } = await modeNamed("kernelspace").loadRuntime();
  const isGood = await checkHost?.({
    networkName,
    writes: values.write,
    print: (line) => output.out(`${line}\n`),
  });
  return isGood ? EXIT_SUCCESS : EXIT_FAILURE;
});
