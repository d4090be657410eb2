/**
 * Packet counts of iptables rules. nat sees only the first packet of a connection, so a rule's packets are connections;
 * filter sees every packet that is rejected or dropped. A rewritten rule restarts at zero.
 */
import { type Exec, execProcess } from "../kernel/process.ts";
import { type IpFamily, parseIpAddress } from "../net/ip.ts";
import { protocolName } from "../net/protocol.ts";
import { addTo, type Count, type CountedPort } from "./traffic.ts";

const TIMEOUT_MS = 60_000;
const TOOLS: Readonly<Record<IpFamily, string>> = { IPv4: "iptables-save", IPv6: "ip6tables-save" };

/** The nat chains with a rule for each frontend, and the chain of an endpoint, if the mode has one. */
interface CountingChains {
  readonly addresses: readonly string[];
  readonly nodePorts: readonly string[];
  readonly endpoint?: (name: CountedPort["name"], endpoint: CountedPort["endpoints"][number]) => string;
}

/** Fills in the counts as `ModeCounters.fill` does. @param exec runs the tools of one network namespace. */
export async function fillFromIptables(
  ports: readonly CountedPort[],
  chains: CountingChains,
  exec: Exec = execProcess,
): Promise<readonly string[]> {
  for (const [family, own] of Map.groupBy(ports, (port) => port.family)) {
    const file = TOOLS[family];
    for (const table of ["nat", "filter"] as const) {
      const { status, stdout, stderr } = await exec(file, ["-c", "-t", table], { timeoutMs: TIMEOUT_MS });
      if (status !== 0) throw new Error(`${file}: ${stderr.trim().split("\n")[0] ?? ""}`);
      fillFromSaved(stdout, own, table, chains);
    }
  }
  return ["Rules count connections since they were written: those of a Service are written again when it changes."];
}

const RULES = /^\[(\d+):\d+\] -A (\S+) (.*)$/gm;
const DESTINATION = /-d ([\da-f.:]+)\/(?:32|128) -p (\w+) .*--dport (\d+) .*-j /;
const NODE_PORT = /-p (\w+) .*--dport (\d+) .*-j /;
const REFUSAL = / -j (REJECT|DROP)\b/;

/** @param text the output of `iptables-save -c -t nat` or `filter`. */
function fillFromSaved(
  text: string,
  ports: readonly CountedPort[],
  table: "nat" | "filter",
  { addresses, nodePorts, endpoint: chainOf }: CountingChains,
): void {
  const frontends = new Map<string, Count>();
  const chains = new Map<string, Count>();
  for (const { name, frontends: own, endpoints } of ports) {
    for (const { address, port, count } of own) {
      frontends.set(`${address ?? ""} ${protocolName(name.protocol)} ${port}`, count);
      if (table === "filter") Object.assign(count, { refused: 0, dropped: 0 });
    }
    for (const endpoint of endpoints) if (chainOf) chains.set(chainOf(name, endpoint), endpoint.count);
  }
  for (const [, packets, chain = "", rule = ""] of text.matchAll(RULES)) {
    if (table === "filter") {
      const [, refusal] = (chain.startsWith("KUBE-") && REFUSAL.exec(rule)) || [];
      const frontend = refusal && frontends.get(addressIn(rule) ?? nodePortIn(rule) ?? "");
      if (frontend) addTo(frontend, refusal === "DROP" ? "dropped" : "refused", Number(packets));
      continue;
    }
    const count = chains.get(chain);
    if (count !== undefined && rule.includes(" -j DNAT ")) addTo(count, "counted", Number(packets));
    const place = addresses.includes(chain)
      ? addressIn(rule)
      : nodePorts.includes(chain)
        ? nodePortIn(rule)
        : undefined;
    const frontend = place === undefined ? undefined : frontends.get(place);
    if (frontend !== undefined) addTo(frontend, "counted", Number(packets));
  }
}

function addressIn(rule: string): string | undefined {
  const [, address = "", protocol, port] = DESTINATION.exec(rule) ?? [];
  return protocol === undefined ? undefined : `${parseIpAddress(address) ?? ""} ${protocol} ${port}`;
}

function nodePortIn(rule: string): string | undefined {
  const [, protocol, port] = NODE_PORT.exec(rule) ?? [];
  return protocol === undefined ? undefined : ` ${protocol} ${port}`;
}
