/**
 * Keeps the compiled code of the bundled program beside it: a start then compiles next to nothing (docs/notes/performance-diary.md).
 * Only a start shows which functions it needs: the program runs for a moment, in a network namespace of its own, where its
 * rules reach no packet and end with it. If there can be no namespace, it runs only if the kernel lets it change nothing.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const NODE = join(root, "node_modules/.bin/node");
const REHEARSAL = join(root, "scripts/rehearsal.mjs");
/** Each begins with what the previous one kept. */
const REHEARSALS = ["nftables-manifests", "nftables-api", "iptables-manifests"];
const CAP_NET_ADMIN = 12n;

/** @returns what went wrong; undefined if all of it is kept. */
export function keepCompiledCode() {
  if (process.platform !== "linux" || !existsSync(NODE)) return "there is no pinned Node.js";
  const namespace = namespaceCommand();
  if (namespace === undefined) return "there can be no network namespace";
  const [program, ...words] = [...namespace, NODE, REHEARSAL];
  for (const name of REHEARSALS) {
    const { status, stderr } = spawnSync(program, [...words, name], { encoding: "utf8", timeout: 60_000 });
    if (status !== 0) return `${name}: ${stderr.trim().split("\n").at(-1) || `ended with ${status}`}`;
  }
  return undefined;
}

/** Words that give a command a network namespace; none if it needs none; undefined if there can be none. */
function namespaceCommand() {
  const ways = [
    ["unshare", "--net"],
    ["unshare", "--user", "--map-root-user", "--net"],
  ];
  const way = ways.find(([program, ...words]) => spawnSync(program, [...words, "true"]).status === 0);
  if (way !== undefined) return way;
  const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1];
  if (capabilities === undefined || (BigInt(`0x${capabilities}`) >> CAP_NET_ADMIN) & 1n) return undefined;
  return [];
}
