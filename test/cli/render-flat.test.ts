/**
 * The text of the flat layout for some of the conformance cases, recorded when packets went where they should
 * (test/kernel/flows/). After an intended change, record what `render` prints.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { render } from "../../src/tools/cli/render.ts";
import { caseState, SERVICE_CIDR_OBJECT } from "../conformance/conformance-case.ts";
import { runCommand } from "./run-command.ts";

const GOLDEN = new URL("./flat-layout.nft", import.meta.url);
const CASES = ["load-balancer-source-ranges", "no-endpoints", "session-affinity"];

test("the flat layout is rendered as it was", async () => {
  let text = "";
  for (const name of CASES) {
    const { node, services, slices } = caseState(name);
    const list = { apiVersion: "v1", kind: "List", items: [node, SERVICE_CIDR_OBJECT, ...services, ...slices] };
    const options = ["--mode", "nftables", "--nftables-layout", "Flat", "--hostname-override", "node-a"];
    const { status, out } = await runCommand(render, ["-f", "-", ...options], JSON.stringify(list));
    assert.equal(status, 0);
    text += `# ${name}\n${out}`;
  }
  assert.equal(text, readFileSync(GOLDEN, "utf8"));
});
