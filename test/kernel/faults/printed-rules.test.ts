/**
 * What `-v 9` prints is what the kernel gets: read from the log and given to `nft` or `iptables-restore` in another namespace, it
 * makes the same rules, before and after a change.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { newRunName } from "../../../testkit/net/run-name.ts";
import { ProxyDaemon } from "../../../testkit/support/proxy-daemon.ts";
import { kernelSkip } from "../../../testkit/support/topology.ts";
import { canonicalNftText } from "../../conformance/canonical-nft-text.ts";

const EXAMPLES = new URL("../../../examples/", import.meta.url);
const OBJECTS = readdirSync(EXAMPLES)
  .filter((name) => name.endsWith(".yaml"))
  .flatMap((name) => parseAllDocuments(readFileSync(new URL(name, EXAMPLES), "utf8")))
  .map((document): unknown => document.toJS());
/** Without the slices of this Service, its chains and elements go. */
const CHANGED = OBJECTS.filter((object) => !JSON.stringify(object).includes('"kubernetes.io/service-name":"cart"'));

/** The blocks that the log has of a fact, `name=<` … ` >`, without the tabs. */
function printed(log: string, message: string, fact: string): string[] {
  const pattern = new RegExp(`\\] "${message}" .*?${fact}=(?:<\\n((?:\\t.*\\n)*) >|"(.*)")`, "g");
  return Array.from(log.matchAll(pattern), ([, block, line = ""]) => block?.replaceAll(/^\t/gm, "") ?? line);
}

interface Case {
  readonly name: string;
  readonly config: Readonly<Record<string, unknown>>;
  rules(namespace: NetworkNamespace): Promise<string>;
  replay(log: string, namespace: NetworkNamespace): Promise<void>;
}

async function nftRules(namespace: NetworkNamespace): Promise<string> {
  return canonicalNftText((await namespace.exec(["nft", "list", "ruleset"])).stdout);
}

async function replayNft(log: string, namespace: NetworkNamespace): Promise<void> {
  for (const input of printed(log, "Running nftables transaction", "transaction")) {
    // A start deletes what another process may have left; there is nothing, and the kernel refuses that in either namespace.
    if (/^delete table ip6? kube-proxy-unanswered$/.test(input.trim())) continue;
    await namespace.exec(["nft", "-f", "-"], { input });
  }
}

/** Counters of the kernel that the daemon makes; another namespace does not have them. */
const ACCOUNTING = / -m nfacct --nfacct-name +\S+/g;

async function savedRules(namespace: NetworkNamespace): Promise<string> {
  const { stdout } = await namespace.exec(["iptables-save"]);
  // The chains of a table are in the order in which they were made; jumps and canaries come from other commands.
  const own = stdout.split("\n").filter((line) => /^-A KUBE-/.test(line) && !line.includes("CANARY"));
  return own.sort().join("\n").replaceAll(ACCOUNTING, "");
}

async function replayIptables(log: string, namespace: NetworkNamespace): Promise<void> {
  for (const input of printed(log, "Restoring iptables", 'command="iptables-restore" rules')) {
    await namespace.exec(["iptables-restore", "--noflush", "--counters"], { input: input.replaceAll(ACCOUNTING, "") });
  }
}

const CASES: readonly Case[] = [
  { name: "nftables", config: { mode: "nftables" }, rules: nftRules, replay: replayNft },
  { name: "Flat", config: { mode: "nftables", nftables: { layout: "Flat" } }, rules: nftRules, replay: replayNft },
  { name: "iptables", config: { mode: "iptables" }, rules: savedRules, replay: replayIptables },
];

for (const { name, config, rules, replay } of CASES) {
  test(`${name}: what -v 9 prints makes the same rules`, { skip: kernelSkip }, async (t) => {
    const [node, other] = [
      await NetworkNamespace.create(newRunName(`v9${name.toLowerCase()}`)),
      await NetworkNamespace.create(newRunName(`v9b${name.toLowerCase()}`)),
    ];
    t.after(() => NetworkNamespace.removeAll([node, other]));
    const daemon = await ProxyDaemon.start(node, {
      config: name === "iptables" ? { ...config, clusterCIDR: "10.180.0.0/16" } : config,
      hostnameOverride: "node-a",
      objects: OBJECTS,
      args: ["-v=9"],
    });
    t.after(() => daemon.dispose());
    const before = await rules(node);
    const changedAt = Date.now();
    daemon.writeObjects(CHANGED);
    await daemon.synced(changedAt, ["IPv4"]);
    await daemon.stop("SIGKILL");
    const after = await rules(node);
    assert.notEqual(after, before);
    await replay(daemon.log, other);
    assert.equal(await rules(other), after);
  });
}
