/** What `nft list ruleset` prints is read as what `nft -j list ruleset` prints of the same rules: upstream's dumps have both. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { trace } from "../../src/cli/trace.ts";
import { isObject, type JsonObject, listOf } from "../../src/trace/nftables/json.ts";
import { readNftText } from "../../src/trace/nftables/text/ruleset.ts";
import { runCommand } from "../cli/run-command.ts";
import { caseFile, caseNames } from "../conformance/conformance-case.ts";

/** What only one of the two prints, and what no lookup needs. */
const LEFT_OUT = new Set(["handle", "index", "type", "map", "policy", "size", "timeout", "gc-interval"]);

function canonical(objects: readonly unknown[]): string[] {
  return objects
    .flatMap((object) => {
      if (!isObject(object)) return [];
      return Object.entries(object).flatMap(([kind, body]) => {
        if (kind === "metainfo" || !isObject(body)) return [];
        return [JSON.stringify({ [kind]: kind === "rule" || kind === "chain" ? shownOnly(body) : setOnly(body) })];
      });
    })
    .sort();
}

/** nft leaves out what is usual: a type of refusal, a counter's numbers. */
function shownOnly({ handle: _handle, ...body }: JsonObject): object {
  const expr = listOf(body.expr).map((statement) => {
    if (!isObject(statement)) return statement;
    if ("counter" in statement) return { counter: null };
    return "reject" in statement && isUsualRefusal(statement.reject) ? { reject: null } : statement;
  });
  return sorted(body.expr === undefined ? body : { ...body, expr });
}

function isUsualRefusal(refusal: unknown): boolean {
  return isObject(refusal) && refusal.expr === "port-unreachable" && refusal.type !== "icmpx";
}

function setOnly(body: JsonObject): object {
  const elem = listOf(body.elem)
    .map((element) => JSON.stringify(element))
    .sort();
  const flags = listOf(body.flags).filter((flag) => flag !== "dynamic");
  const rest = Object.entries(body).filter(([key]) => !LEFT_OUT.has(key));
  return sorted({ ...Object.fromEntries(rest), elem, flags });
}

function sorted(body: JsonObject): object {
  return Object.fromEntries(Object.entries(body).sort(([a], [b]) => (a < b ? -1 : 1)));
}

for (const name of caseNames()) {
  test(name, () => {
    const { nftables } = JSON.parse(caseFile(name, "nftables/nft.json"));
    const read = canonical(readNftText(caseFile(name, "nftables/nft.txt")));
    assert.ok(read.length > 20);
    assert.deepEqual(read, canonical(listOf(nftables)));
  });
}

test("a packet meets the same in either", async () => {
  const packet = [
    "--from",
    "10.180.0.9",
    "--in",
    "cni0",
    "--to",
    "10.96.1.1:80",
    "--local",
    "10.200.0.2",
    "--dump",
    "-",
  ];
  const ask = (file: string) => runCommand(trace, packet, caseFile("cluster-ip", file));
  const [text, json] = [await ask("nftables/nft.txt"), await ask("nftables/nft.json")];
  assert.equal(text.status, 0, text.err);
  assert.match(text.out, /sent to 10\.180\.0\.5:8080/);
  assert.deepEqual(text, json);
});
