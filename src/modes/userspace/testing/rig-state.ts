/** The state of a userspace rig in a form that is equal for equal Services, although proxy ports differ in each run. */
import type { BackendRig } from "./backend-rig.ts";

/** Rules and sockets, with each proxy port replaced by its service port. */
export function rigState(rig: BackendRig): unknown {
  const owners = new Map<string, string>();
  for (const line of `${rig.iptables.dump("nat")}${rig.iptables.dump("filter")}`.split("\n")) {
    const owner = /--comment "([^"]*)" -m (\S+)/.exec(line);
    const proxyPort = /--to-(?:ports |destination \S+:)(\d+)/.exec(line)?.[1];
    if (owner !== null && proxyPort !== undefined) owners.set(`${owner[2]} ${proxyPort}`, owner[1] ?? "");
  }
  const rules = rig.portalRules.map((rule) => {
    const protocol = / -p (\S+)/.exec(rule)?.[1] ?? "";
    return rule.replace(
      /(?<=--to-ports |--to-destination \S+:|--dport )\d{5}\b/g,
      (text) => owners.get(`${protocol} ${text}`) ?? text,
    );
  });
  const sockets = rig.openSockets
    .map((text) => text.replace(/^(listening (\S+) 0\.0\.0\.0:)(3[2-9]\d{3})$/, "$1any"))
    .sort();
  return { rules: rules.sort(), sockets };
}
