/** `explain`, `trace`, `diff` and `render` look from a node that exists. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { diff } from "../../src/tools/cli/diff.ts";
import { explain } from "../../src/tools/cli/explain.ts";
import { UsageError } from "../../src/tools/cli/output.ts";
import { render } from "../../src/tools/cli/render.ts";
import { trace } from "../../src/tools/cli/trace.ts";
import { examplesAsJson, runCommand } from "./run-command.ts";

const LONG = "ip-10-0-1-17.eu-central-1.compute.internal";
const COMMANDS = {
  explain: (...argv: string[]) => runCommand(explain, ["shop/web", ...argv], objects),
  trace: (...argv: string[]) => runCommand(trace, ["--from", "pod", "--to", "10.96.0.10:80", ...argv], objects),
  diff: (...argv: string[]) => runCommand(diff, ["--dump", "/dev/null", ...argv], objects),
  render: (...argv: string[]) => runCommand(render, argv, objects),
} as const;

const node = (name: string, taints: readonly object[] = []) => ({
  apiVersion: "v1",
  kind: "Node",
  metadata: { name },
  spec: { podCIDR: "10.180.0.0/24", taints },
  status: { addresses: [{ type: "InternalIP", address: "10.200.0.2" }] },
});
const { items } = JSON.parse(examplesAsJson());
const others = items.filter(({ kind }: { kind: string }) => kind !== "Node");
const control = node("a-control", [{ key: "node-role.kubernetes.io/control-plane", effect: "NoSchedule" }]);
const objects = JSON.stringify({
  apiVersion: "v1",
  kind: "List",
  items: [...others, node(LONG), control, node("zz")],
});

/** What the user sees, whichever way the command ends. */
async function refusal(run: () => Promise<{ readonly status: number; readonly err: string }>): Promise<string> {
  try {
    const { status, err } = await run();
    return `${status} ${err}`;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return `2 Error: ${error.message}\n${error.hint ?? ""}\n`;
  }
}

for (const [name, run] of Object.entries(COMMANDS)) {
  test(`${name}: a node that is not there is an error with the nearest name`, async () => {
    const short = await refusal(() => run("-f", "-", "--node", "ip-10-0-1-17"));
    assert.match(short, new RegExp(`^2 Error: there is no Node "ip-10-0-1-17"\nDid you mean ${LONG}\\?\n$`));
    const other = await refusal(() => run("-f", "-", "--node", "something-else"));
    assert.match(other, new RegExp(`\nThere are a-control, ${LONG}, zz\\.\n$`));
  });

  test(`${name}: without --node, the first by name that takes pods, which is said`, async () => {
    const { out, err } = await run("-f", "-").catch((error: unknown) => ({ out: "", err: String(error) }));
    const said = `Seen from ${LONG}, one of 3 Nodes: --node names another.`;
    assert.ok(`${out}${err}`.includes(said), `${out}${err}`);
  });
}
