/** The daemon, run on every case, leaves what upstream left: `iptables-save` and `ip6tables-save`, name for name. */
import { canonicalIptables } from "./canonical-iptables.ts";
import { caseFile } from "./conformance-case.ts";
import { daemonLeavesWhatUpstreamLeft } from "./daemon-cases.ts";

const TOOLS = ["iptables-save", "ip6tables-save"] as const;
const DUMPS = ["iptables.txt", "ip6tables.txt"] as const;

daemonLeavesWhatUpstreamLeft({
  mode: "iptables",
  objects: ({ node, services, slices }) => [node, ...services, ...slices],
  expected: (name) => DUMPS.map((file) => canonicalIptables(caseFile(name, `iptables/${file}`))),
  actual: (daemon) => Promise.all(TOOLS.map(async (tool) => canonicalIptables(await daemon.saved(tool)))),
});
