/**
 * Makes two dumps of iptables comparable, by the rules of the conformance cases: counters and canary chains do not
 * count, and in chains that services share only the order within one service's group does, and that node ports come last.
 */

const SHARED_CHAINS = new Set(["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"]);

/** One table: its chains with their rules, in canonical order. */
type Table = Map<string, string[]>;

/**
 * Reads the output of `iptables-save` and prints it in a form that is equal for equal rule sets.
 * @param saved one or more tables.
 */
export function canonicalIptables(saved: string): string {
  const tables = new Map<string, Table>();
  let table: Table = new Map();
  /** Of the table, by the chain's name alone. */
  let rulesOf = new Map<string, string[]>();
  for (const line of saved.split("\n")) {
    if (line.startsWith("*")) {
      table = new Map();
      rulesOf = new Map();
      tables.set(line.slice(1), table);
    } else if (line.startsWith(":")) {
      const [name = "", policy = ""] = line.slice(1).split(" ");
      if (name === "KUBE-PROXY-CANARY") continue;
      const rules: string[] = [];
      rulesOf.set(name, rules);
      table.set(`${name} ${policy}`, rules);
    } else if (line.startsWith("-A ")) {
      const chain = line.split(" ", 2)[1] ?? "";
      rulesOf.get(chain)?.push(line.replace(/ {2,}/g, " "));
    }
  }
  const out: string[] = [];
  for (const [name, chains] of [...tables].sort(byKey)) {
    const lines = [...chains].sort(byKey).flatMap(([key, rules]) => {
      const chain = key.split(" ", 1)[0] ?? "";
      return [`:${key}`, ...(SHARED_CHAINS.has(chain) ? groupByService(rules) : rules)];
    });
    // A table that only ever had a canary looks like one that was never touched.
    if (lines.some((line) => !/^:[A-Z]+ ACCEPT$/.test(line))) out.push(`*${name}`, ...lines);
  }
  return `${out.join("\n")}\n`;
}

function byKey(a: readonly [string, unknown], b: readonly [string, unknown]): number {
  return a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
}

/** The service that a rule of a shared chain is for: the first word of its comment. */
function serviceOf(rule: string): string {
  const comment = /--comment (?:"([^"]*)"|(\S+))/.exec(rule);
  return (comment?.[1] ?? comment?.[2] ?? "").split(" ", 1)[0] ?? "";
}

function groupByService(rules: readonly string[]): string[] {
  const groups = new Map<string, string[]>();
  const tail: string[] = [];
  for (const rule of rules) {
    const service = serviceOf(rule);
    if (!service.includes("/")) {
      tail.push(rule);
      continue;
    }
    if (tail.length > 0) throw new Error(`rule of a service after the node-port jump: ${rule}`);
    const group = groups.get(service);
    if (group === undefined) groups.set(service, [rule]);
    else group.push(rule);
  }
  // One jump for each node address, from a map of Go (`GetNodeIPs`), whose order is random.
  return [...[...groups].sort(byKey).flatMap(([, group]) => group), ...tail.sort()];
}
