/**
 * Makes the text of `iptables-save` comparable where only some of the order counts. In a chain that services share, a
 * packet tells apart the order of rules of one service, of rules with the same destination (several services may claim
 * it), and which rules come after all services. In every other chain the whole order counts.
 */

const SHARED_CHAINS: ReadonlySet<string> = new Set([
  "KUBE-SERVICES",
  "KUBE-NODEPORTS",
  "KUBE-EXTERNAL-SERVICES",
  "KUBE-PROXY-FIREWALL",
]);

const COMMENT = / -m comment --comment (?:"([^"]*)"|(\S+))/;
const HEALTH_CHECK = " health check node port";
const DESTINATION = /(?:-d|-p|--dport|--dst-type) \S+/g;

export interface ComparableOptions {
  /** Large-cluster mode leaves comments out of chains that it rewrites, and in the others (iptables.md §8). */
  readonly ignoresCommentsOfEndpoints?: boolean;
}

/** The parts of one table in which two dumps differ, each as lines of both; none when they mean the same. Pure. */
export function ruleDifferences(actual: string, expected: string, options: ComparableOptions = {}): string[] {
  const [a, b] = [sectionsOf(actual, options), sectionsOf(expected, options)];
  const titles = [...new Set([...a.keys(), ...b.keys()])].sort();
  return titles
    .filter((title) => a.get(title) !== b.get(title))
    .map((title) => `${title}\nis\n${a.get(title) ?? "(absent)"}\nshall be\n${b.get(title) ?? "(absent)"}`);
}

/** One table as canonical text, by the name of what must be equal in it. */
function sectionsOf(saved: string, options: ComparableOptions): Map<string, string> {
  const chains = new Map<string, string[]>();
  for (const line of saved.split("\n")) {
    if (line.startsWith(":")) chains.set(line.slice(1, line.indexOf(" ")), []);
    else if (line.startsWith("-A ")) {
      const end = line.indexOf(" ", 3);
      const chain = end < 0 ? line.slice(3) : line.slice(3, end);
      chains.get(chain)?.push(end < 0 ? "" : line.slice(end));
    }
  }
  const sections = new Map<string, string>();
  for (const [name, rules] of chains) {
    if (name === "KUBE-PROXY-CANARY") continue;
    if (SHARED_CHAINS.has(name))
      for (const [key, group] of sharedGroups(rules)) sections.set(`${name} ${key}`, group.join("\n"));
    else
      sections.set(name, (options.ignoresCommentsOfEndpoints === true ? rules.map(withoutComment) : rules).join("\n"));
  }
  return sections;
}

/**
 * The rules that one service port has in a dump of one table, in shared chains and its own. Pure.
 *
 * @param owner `namespace/name:port protocol`. @param ownChains names of the chains that it should have.
 */
export function rulesOfOwner(saved: string, owner: string, ownChains: readonly string[]): string {
  const own = new Set(ownChains);
  const healthCheck = owner.slice(0, owner.lastIndexOf(" ")) + HEALTH_CHECK;
  const lines = saved.split("\n").filter((line) => {
    if (line.startsWith(":")) return own.has(line.slice(1, line.indexOf(" ")));
    if (!line.startsWith("-A ")) return false;
    const chain = line.split(" ", 2)[1] ?? "";
    if (!SHARED_CHAINS.has(chain)) return own.has(chain);
    const found = ownerOf(line);
    return found === owner || found === healthCheck;
  });
  return [...new Set(lines)].sort(byChain).join("\n");
}

/** Of these chains those that a dump of nat has, with the chains of endpoints that they jump to. Pure. */
export function withEndpointChains(saved: string, chains: readonly string[]): string[] {
  const found = new Set(chains.filter((chain) => saved.includes(`\n:${chain} `)));
  for (const [, chain = "", target = ""] of saved.matchAll(/^-A (\S+) .*-j (KUBE-SEP-\S+)$/gm)) {
    if (found.has(chain)) found.add(target);
  }
  return [...found];
}

/** A stable order by chain; within a chain rules stay as they are. */
function byChain(a: string, b: string): number {
  const [chainA = "", chainB = ""] = [a.split(" ", 2)[1], b.split(" ", 2)[1]];
  return chainA < chainB ? -1 : chainA > chainB ? 1 : 0;
}

function sharedGroups(rules: readonly string[]): Map<string, string[]> {
  const tail: string[] = [];
  const groups = new Map<string, string[]>([["tail", tail]]);
  const add = (key: string, rule: string) => {
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [rule]);
    else group.push(rule);
  };
  for (const rule of rules) {
    const owner = ownerOf(rule);
    if (owner === undefined) tail.push(rule);
    else if (tail.length > 0) tail.push(`RULE OF A SERVICE AFTER THE NODE PORTS:${rule}`);
    else {
      add(`of ${owner}`, rule);
      // All ports of a service let the same health checks in.
      if (!owner.endsWith(HEALTH_CHECK)) add(`at ${destinationOf(rule)}`, rule);
    }
  }
  return groups;
}

/** `namespace/name:port` and the protocol; undefined for rules that belong to no service. */
function ownerOf(rule: string): string | undefined {
  const comment = COMMENT.exec(rule);
  const text = comment?.[1] ?? comment?.[2] ?? "";
  const name = text.split(" ", 1)[0] ?? "";
  if (!name.includes("/")) return undefined;
  if (text.endsWith(HEALTH_CHECK)) return name + HEALTH_CHECK;
  return `${name} ${/ -p (\S+)/.exec(rule)?.[1] ?? ""}`;
}

/** What a packet must have to meet the rule. */
function destinationOf(rule: string): string {
  return (withoutComment(rule).match(DESTINATION) ?? []).join(" ");
}

function withoutComment(rule: string): string {
  return rule.replace(COMMENT, "");
}
